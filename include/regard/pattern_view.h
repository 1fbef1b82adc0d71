// Patterns of heads, layers down and heads across: in a terminal, as a figure, as
// JSON. Every label comes with its score.
#pragma once

#include <string>
#include <vector>

#include "regard/figure.h"
#include "regard/terminal.h"
#include "regard/trace.h"

namespace regard {

// Model, kind, lengths and what the scores mean.
std::string pattern_caption(const PatternGrid& grid);

// ".93", "1.00", "-" where undefined.
std::string score_text(double score);

// "local: weight within ... (at most 2 away)": a label and what it counts.
std::string pattern_legend(Pattern pattern, const PatternOptions& options);

// An overview, one cell a head, in as many bands of heads as the width asks for,
// and what the labels that occur mean.
std::string terminal_patterns(const PatternGrid& grid, const TerminalOptions& options = {});

// All scores of every head: a line a head where the width permits, else wrapped.
std::string terminal_pattern_scores(const PatternGrid& grid, const TerminalOptions& options = {});

// A cell a head: label, score, and a bar as long as the score, on a tint of the
// pattern's own. `caption` is written below. Throws ArgumentError for a grid
// without heads and for options out of range.
std::string figure_patterns(const PatternGrid& grid, const std::string& caption, FigureFormat format,
                            const FigureOptions& options = {});

// {"patterns": [{"kind", "layer", "head", "label", "score", "scores": {"previous":
// {"score", "uniform"}, ...}, "distance", "uniform_distance", "vertical_key"}, ...]};
// null where undefined.
std::string patterns_json(const std::vector<PatternGrid>& grids);

}  // namespace regard
