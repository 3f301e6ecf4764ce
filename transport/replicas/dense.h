// The wire format of dense pieces (layout.h): their form and size in bytes.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "codec/sdp4bit/format.h"
#include "run/replicas/options.h"
#include "transport/replicas/layout.h"

namespace longhaul::replicas {

static_assert(kUnit % codec::sdp4bit::kDifferenceGroup == 0 &&
              kUnit % codec::sdp4bit::kGradientGroup == 0);

// Returns the form of dense gradients: tagc sends them in bf16, and local-sgd as sdp4bit does.
GradientForm DenseForm(const GradientOptions& gradients);

// Returns the bytes of one piece in a payload. Pieces follow each other without gaps.
uint64_t GradientBytes(GradientForm form, const Piece& piece);
uint64_t ParameterBytes(ParameterForm form, const Piece& piece);
// Returns the bytes of all pieces.
uint64_t GradientBytes(GradientForm form, std::span<const Piece> pieces);
uint64_t ParameterBytes(ParameterForm form, std::span<const Piece> pieces);

// Returns how many numbers are summed for `count` gradients. sdp4bit sums transformed blocks,
// padded with zeros, so it sums more.
inline uint64_t SummandsOf(GradientForm form, uint64_t count) {
  return form == GradientForm::kSdp4bit ? codec::sdp4bit::Transformed(count) : count;
}

}  // namespace longhaul::replicas
