// What both media of an overlay share, and the drawing before it becomes a file.
#pragma once

#include "regard/overlay.h"
#include "view/scene.h"

namespace regard {

void check_overlay(const HeatMap& map, const PatchedPicture& picture);

// 0 (background) to 1 (ink): the rarer of light and dark is ink, its strongest pixel 1.
Tensor<float> ink_of(const Tensor<float>& pixels);

namespace figure {

// The title, titles and ticks of both axes, and the bands; without scale and caption.
Scene overlay_scene(const HeatMap& map, const PatchedPicture& picture, const FigureOptions& options);

}  // namespace figure
}  // namespace regard
