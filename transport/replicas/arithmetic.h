// The arithmetic of the exchange between data-parallel replicas, over gradients, values, masters
// (fp32 parameters of shard owners) and residuals (amounts that rounding and sketches left for
// later steps).
//
// A span of floats points into the arithmetic's memory, which is the host's (host_arithmetic.h) or
// a GPU's (worker/stage/replicas/torch_arithmetic.h). Only the arithmetic dereferences it. Every
// implementation gives the same bytes (message.h) and the same finite numbers.
//
// Threads: one call at a time. Errors: kInternal and kResourceExhausted on a GPU, none on the host.
// When a call returns, its results in host memory are complete; its changes are visible to later
// calls and to GPU work queued later.
#pragma once

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
  //
  // Makes `count` zeros.
  virtual StatusOr<Numbers> Make(uint64_t count) = 0;
  virtual Status Read(std::span<const float> numbers, std::span<float> in_host) = 0;
  virtual Status Write(std::span<const float> in_host, std::span<float> numbers) = 0;
  virtual Status Copy(std::span<const float> from, std::span<float> to) = 0;
  // Sums all squares in double, in an order that depends on the counts alone.
  virtual StatusOr<double> SumOfSquares(std::span<const std::span<const float>> numbers) = 0;

  // --- Dense pieces. Payloads are in host memory, with the sizes of dense.h.
  //
  // With error feedback, adds `residuals` to the numbers before they are encoded, and stores the
  // rounding errors in `residuals`. A number that is not finite leaves no residual.
  virtual Status EncodeGradients(GradientForm form, std::span<const Piece> pieces,
                                 std::span<const ParameterMemory> memory,
                                 const codec::RoundingNoise& noise, const Residuals& residuals,
                                 std::span<std::byte> out) = 0;
  // Writes the means over replicas, summed in their order, to `own`. payloads[replica]: empty for
  // this replica, whose unrounded gradients are in `memory`.
  virtual Status ReduceGradients(GradientForm form, std::span<const OwnPiece> own,
                                 std::span<const ParameterMemory> memory,
                                 std::span<const std::span<const std::byte>> payloads) = 0;
  // Encodes the masters relative to the values that all replicas have. Also sets this replica's
  // values to those that the others will decode.
  virtual Status EncodeParameters(ParameterForm form, std::span<const OwnPiece> own,
                                  std::span<const ParameterMemory> memory,
                                  std::span<std::byte> out) = 0;
  virtual Status DecodeParameters(ParameterForm form, std::span<const Piece> pieces,
                                  std::span<const std::byte> payload,
                                  std::span<const ParameterMemory> memory) = 0;

  // --- Sparse pieces. Each set bit of `bitmap` is a position (codec/tagc/select.h); values are in
  // the order of positions.
  virtual StatusOr<bool> AllFinite(std::span<const float> numbers) = 0;
  // Adds `gradient` to `residual` where it is finite, and sets the bits of the `keep` largest
  // residuals, as tagc::Select does.
  virtual Status AddAndSelect(std::span<const float> gradient, std::span<float> residual,
                              uint64_t keep, std::span<uint64_t> bitmap) = 0;
  virtual StatusOr<std::vector<float>> Get(std::span<const uint64_t> bitmap,
                                           std::span<const float> numbers) = 0;
  virtual Status Put(std::span<const uint64_t> bitmap, std::span<const float> values,
                     std::span<float> numbers) = 0;
  // Divides; each result is rounded once.
  virtual Status Divide(std::span<const float> numbers, float divisor, std::span<float> out) = 0;
};

}  // namespace longhaul::replicas
