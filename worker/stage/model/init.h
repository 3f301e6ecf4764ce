// Initial values of parameters. They have the same bits on each machine, however layers are divided
// into stages.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "run/model/share.h"

namespace longhaul::worker {

// Fills `values`, a whole parameter, with normal numbers of mean 0. A number depends only on the
// seed, the parameter's name, the deviation and its position. Thread-safe. Starts up to 15 threads
// for a large array.
void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<float> values);
// As above, but makes only the numbers at the positions in `stretches`. `values` must have one
// element for each position.
void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<const model::Stretch> stretches, std::span<float> values);

}  // namespace longhaul::worker
