// Gradients of dense pieces and parameters of all pieces, to bytes and back. Payloads have the
// sizes that these functions name; the caller has checked that.
//
// Threads: pure functions.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_DENSE_H_
#define LONGHAUL_TRANSPORT_REPLICAS_DENSE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/rounding.h"
#include "transport/replicas/memory.h"

namespace longhaul::replicas {

// What `gradients` makes of dense pieces: tagc sends them in bf16, local-sgd as sdp4bit does.
GradientForm DenseForm(const GradientOptions& gradients);

uint64_t GradientBytes(GradientForm form, std::span<const Piece> pieces);
// With feedback `residuals` are added to what is sent, and become what rounding lost. Numbers that
// are not finite leave no residual.
void EncodeGradients(GradientForm form, std::span<const Piece> pieces,
                     std::span<const ParameterMemory> memory, const codec::RoundingNoise& noise,
                     Residuals* residuals, std::span<std::byte> out);
// Means over replicas, summed in their order, to `own`. payloads[replica]; empty: that is this
// replica, whose gradients are in `memory` and lose nothing.
void ReduceGradients(GradientForm form, std::span<OwnPiece> own,
                     std::span<const ParameterMemory> memory,
                     std::span<const std::span<const std::byte>> payloads);

uint64_t ParameterBytes(ParameterForm form, std::span<const Piece> pieces);
// Of masters beside what all replicas have; this replica's values become what the others make of
// the bytes.
void EncodeParameters(ParameterForm form, std::span<const OwnPiece> own,
                      std::span<const ParameterMemory> memory, std::span<std::byte> out);
void DecodeParameters(ParameterForm form, std::span<const Piece> pieces,
                      std::span<const std::byte> payload, std::span<const ParameterMemory> memory);

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_DENSE_H_
