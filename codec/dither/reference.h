// For tests: a plain implementation of format.h, one element after the other. It writes the same
// bytes as the kernels. It shares only constant tables and random numbers (rounding.h) with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/dither/format.h"

namespace longhaul::codec::dither {

// Returns the payload of a tensor. `x`: its elements.
std::vector<std::byte> ReferencePayload(std::span<const float> x, const Shape& shape,
                                        const Params& params, const Context& context);
// Returns the elements that a payload decodes to. `payload`: written by an encoder.
std::vector<float> ReferenceValues(std::span<const std::byte> payload, const Shape& shape,
                                   const Params& params);

// Returns a table of frequencies. It has 2 * reach + 1 entries: those of the symbols from -reach to
// reach - 1, and last that of the escape. `outer`: true for the table for |u| >= 1/4.
std::vector<uint32_t> FrequenciesOf(uint32_t half_bits, bool outer);

}  // namespace longhaul::codec::dither
