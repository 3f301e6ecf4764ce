// The numbers of an exchange and who computes with them: of a stage's gradients and values, of
// masters, and of what rounding and sketches left for later steps.
//
// A span of floats is a place in the arithmetic's memory, which is the host's (host_arithmetic.h)
// or a GPU's (worker/stage/torch_arithmetic.h); only the arithmetic follows it. Bytes are those of
// message.h, and finite numbers the same, whoever computes.
//
// Threads: one call at a time. Errors: of a GPU kInternal and kResourceExhausted; the host has
// none. A call returns when what it gives is there, and what it changes is changed for the calls
// that follow, and for a GPU's work that is queued behind.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_ARITHMETIC_H_
#define LONGHAUL_TRANSPORT_REPLICAS_ARITHMETIC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/rounding.h"
#include "run/replicas/options.h"
#include "transport/replicas/memory.h"

namespace longhaul::replicas {

class Arithmetic {
 public:
  virtual ~Arithmetic() = default;

  // --- Any numbers.
  // So many zeros.
  virtual StatusOr<Numbers> Make(uint64_t count) = 0;
  virtual Status Read(std::span<const float> numbers, std::span<float> in_host) = 0;
  virtual Status Write(std::span<const float> in_host, std::span<float> numbers) = 0;
  virtual Status Copy(std::span<const float> from, std::span<float> to) = 0;
  // Of all of them, in double, in an order that their counts decide.
  virtual StatusOr<double> SumOfSquares(std::span<const std::span<const float>> numbers) = 0;

  // --- Dense pieces. Payloads are in the host's memory and have the sizes of dense.h.
  // With feedback `residuals` are added to what is sent, and become what rounding lost. Numbers
  // that are not finite leave no residual.
  virtual Status EncodeGradients(GradientForm form, std::span<const Piece> pieces,
                                 std::span<const ParameterMemory> memory,
                                 const codec::RoundingNoise& noise, const Residuals& residuals,
                                 std::span<std::byte> out) = 0;
  // Means over replicas, summed in their order, to `own`. payloads[replica]; empty: that is this
  // replica, whose gradients are in `memory` and lose nothing.
  virtual Status ReduceGradients(GradientForm form, std::span<const OwnPiece> own,
                                 std::span<const ParameterMemory> memory,
                                 std::span<const std::span<const std::byte>> payloads) = 0;
  // Of masters beside what all replicas have; this replica's values become what the others make of
  // the bytes.
  virtual Status EncodeParameters(ParameterForm form, std::span<const OwnPiece> own,
                                  std::span<const ParameterMemory> memory,
                                  std::span<std::byte> out) = 0;
  virtual Status DecodeParameters(ParameterForm form, std::span<const Piece> pieces,
                                  std::span<const std::byte> payload,
                                  std::span<const ParameterMemory> memory) = 0;

  // --- Sparse pieces. Bits of `bitmap` are positions (codec/tagc/select.h); numbers at these come
  // and go in their order.
  virtual StatusOr<bool> AllFinite(std::span<const float> numbers) = 0;
  // Adds `gradient` to `residual`, where that is finite, and sets the bits of the `keep` largest
  // residuals, as tagc::Select does.
  virtual Status AddAndSelect(std::span<const float> gradient, std::span<float> residual,
                              uint64_t keep, std::span<uint64_t> bitmap) = 0;
  virtual StatusOr<std::vector<float>> Get(std::span<const uint64_t> bitmap,
                                           std::span<const float> numbers) = 0;
  virtual Status Put(std::span<const uint64_t> bitmap, std::span<const float> values,
                     std::span<float> numbers) = 0;
  // Rounded once.
  virtual Status Divide(std::span<const float> numbers, float divisor, std::span<float> out) = 0;
};

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_ARITHMETIC_H_
