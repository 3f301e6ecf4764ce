// Computes the form and the size in bytes of encoded dense pieces (layout.h). The forms are those
// of run files (run/replicas/options.h).
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

// Returns the form in which dense gradients are sent: kBf16 for tagc, kSdp4bit for local-sgd,
// otherwise `gradients.form`.
GradientForm DenseForm(const GradientOptions& gradients);

// Returns the bytes of one encoded piece. In a payload, pieces follow each other without gaps.
uint64_t GradientBytes(GradientForm form, const Piece& piece);
uint64_t ParameterBytes(ParameterForm form, const Piece& piece);
// Returns the bytes of all pieces.
uint64_t GradientBytes(GradientForm form, std::span<const Piece> pieces);
uint64_t ParameterBytes(ParameterForm form, std::span<const Piece> pieces);

// Returns how many numbers are summed for `count` gradients: `count`, or more for sdp4bit, which
// sums transformed blocks padded with zeros.
inline uint64_t SummandsOf(GradientForm form, uint64_t count) {
  return form == GradientForm::kSdp4bit ? codec::sdp4bit::Transformed(count) : count;
}

}  // namespace longhaul::replicas
