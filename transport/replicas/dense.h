// The wire format of dense pieces: their form and size in bytes.
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

// The form of dense gradients: tagc sends them in bf16, local-sgd like sdp4bit.
GradientForm DenseForm(const GradientOptions& gradients);

// Bytes of one piece in a payload. Pieces follow each other without gaps.
uint64_t GradientBytes(GradientForm form, const Piece& piece);
uint64_t ParameterBytes(ParameterForm form, const Piece& piece);
// Bytes of all pieces.
uint64_t GradientBytes(GradientForm form, std::span<const Piece> pieces);
uint64_t ParameterBytes(ParameterForm form, std::span<const Piece> pieces);

// Returns how many numbers are summed for `count` gradients (sdp4bit sums transformed, padded
// blocks).
inline uint64_t SummandsOf(GradientForm form, uint64_t count) {
  return form == GradientForm::kSdp4bit ? codec::sdp4bit::Transformed(count) : count;
}

}  // namespace longhaul::replicas
