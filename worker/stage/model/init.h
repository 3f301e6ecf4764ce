// Initial values of parameters. They have the same bits on each machine, however layers are divided
// into stages.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "run/model/share.h"

namespace longhaul::worker {

// Fills `values`, a whole parameter, row-major, with normally distributed numbers of mean 0. A
// number depends only on the seed, the parameter's name, the deviation and the number's index in
// the parameter. Cannot fail. Thread-safe. For a large array, starts up to 15 threads and waits for
// them.
void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<float> values);
// As above, but makes only the numbers of a rank's share. `stretches`: ranges of indices in the
// whole parameter (run/model/share.h). `values` must have one element for each index.
void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<const model::Stretch> stretches, std::span<float> values);

}  // namespace longhaul::worker
