// What dense pieces are on the wire: in which form, and how many bytes.
//
// Threads: pure functions.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_DENSE_H_
#define LONGHAUL_TRANSPORT_REPLICAS_DENSE_H_

#include <cstdint>
#include <span>

#include "codec/sdp4bit/format.h"
#include "run/replicas/options.h"
#include "transport/replicas/layout.h"

namespace longhaul::replicas {

static_assert(kUnit % codec::sdp4bit::kDifferenceGroup == 0 &&
              kUnit % codec::sdp4bit::kGradientGroup == 0);

// What `gradients` makes of dense pieces: tagc sends them in bf16, local-sgd as sdp4bit does.
GradientForm DenseForm(const GradientOptions& gradients);

// Of a piece in a payload, where pieces follow each other.
uint64_t GradientBytes(GradientForm form, const Piece& piece);
uint64_t ParameterBytes(ParameterForm form, const Piece& piece);
// Of all.
uint64_t GradientBytes(GradientForm form, std::span<const Piece> pieces);
uint64_t ParameterBytes(ParameterForm form, std::span<const Piece> pieces);

// How many numbers the contributions to so many gradients are, where they are summed.
inline uint64_t SummandsOf(GradientForm form, uint64_t count) {
  return form == GradientForm::kSdp4bit ? codec::sdp4bit::Transformed(count) : count;
}

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_DENSE_H_
