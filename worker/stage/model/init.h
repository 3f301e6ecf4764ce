// Initial parameter values: the same bits on every machine and for every split of the layers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "run/model/share.h"

namespace longhaul::worker {

// Fills `values` with normal numbers of mean 0 that depend only on (seed, name, position). Pure.
// Large arrays use up to 16 threads of the function's own.
void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<float> values);
// Makes the same numbers at the positions of `stretches` only. `values` has one element for each
// position.
void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<const model::Stretch> stretches, std::span<float> values);

}  // namespace longhaul::worker
