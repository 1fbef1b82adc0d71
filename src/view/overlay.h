// What both media of an overlay share, and the drawing before it becomes a file.
#pragma once

#include "regard/overlay.h"
#include "view/scene.h"

namespace regard {

void check_overlay(const HeatMap& map, const PatchedPicture& picture);

// 0 (background, and what is on its other side) to 1 (the strongest pixel of ink), by ink_of.
Tensor<float> ink_shares(const Tensor<float>& pixels);

namespace figure {

// The title, titles and ticks of both axes, and the bands; without scale and caption.
Scene overlay_scene(const HeatMap& map, const PatchedPicture& picture, const FigureOptions& options);

}  // namespace figure
}  // namespace regard
