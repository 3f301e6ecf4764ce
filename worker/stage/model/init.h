// Initial parameter values: the same bits on every machine and for every split of the layers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "run/model/share.h"

namespace longhaul::worker {

// Fills `values` with normal numbers of mean 0 that depend on (seed, name, position) alone. Pure.
// Large arrays use up to 16 threads of its own.
void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<float> values);
// The same numbers at the positions of `stretches` only. `values` has as many elements as they have
// positions.
void FillNormal(uint64_t seed, std::string_view name, double standard_deviation,
                std::span<const model::Stretch> stretches, std::span<float> values);

}  // namespace longhaul::worker
