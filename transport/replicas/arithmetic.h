// The arithmetic of the exchange between data-parallel replicas (reducer.h). It works on gradients;
// values, the parameters that forward and backward passes compute with; masters, the fp32
// parameters that a shard's owner keeps; and residuals, the parts of gradients that rounding and
// sketches left for later steps. Pieces, shards and buckets: layout.h.
//
// A span of floats points into the arithmetic's memory: the host's (host_arithmetic.h) or a GPU's
// (worker/stage/replicas/torch_arithmetic.h). Only the arithmetic dereferences such a span.
// Parameters named `in_host`, bitmaps, payloads and vectors are in host memory. Every
// implementation makes the same messages (message.h) and the same finite numbers.
//
// Threads: one call at a time. Errors: kInternal and kResourceExhausted on a GPU, none on the host.
// When a call returns, its results in host memory are complete. Its changes of device memory are
// visible to later calls and to GPU work queued later.
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
  // Read copies to host memory, Write from it, Copy within the arithmetic's memory. Both spans have
  // the same length.
  virtual Status Read(std::span<const float> numbers, std::span<float> in_host) = 0;
  virtual Status Write(std::span<const float> in_host, std::span<float> numbers) = 0;
  virtual Status Copy(std::span<const float> from, std::span<float> to) = 0;
  virtual Status Fill(float value, std::span<float> numbers) = 0;
  // Returns the sum of the squares of all numbers, computed in double. The order of additions
  // depends on the lengths of the spans alone.
  virtual StatusOr<double> SumOfSquares(std::span<const std::span<const float>> numbers) = 0;

  // --- Dense pieces. Payloads have the sizes of dense.h. `memory` and `residuals` have one entry
  // for each parameter of the stage.
  //
  // Encodes the gradients of `pieces` to `out`. For parameters with residuals (error feedback),
  // first adds the residuals to the gradients, and stores the rounding errors as the new residuals.
  // If an error is not finite, the residual becomes 0.
  virtual Status EncodeGradients(GradientForm form, std::span<const Piece> pieces,
                                 std::span<const ParameterMemory> memory,
                                 const codec::RoundingNoise& noise, const Residuals& residuals,
                                 std::span<std::byte> out) = 0;
  // Writes the means over replicas, summed in the order of replicas, to the gradients of `own`.
  // payloads[r] is replica r's payload. This replica's own payload is empty; the call reads this
  // replica's gradients, unrounded, from `memory`.
  virtual Status ReduceGradients(GradientForm form, std::span<const OwnPiece> own,
                                 std::span<const ParameterMemory> memory,
                                 std::span<const std::span<const std::byte>> payloads) = 0;
  // Encodes the masters of `own` to `out`. The form difference4 encodes the masters minus the
  // values that all replicas have. Also sets this replica's values to the values that the others
  // will decode.
  virtual Status EncodeParameters(ParameterForm form, std::span<const OwnPiece> own,
                                  std::span<const ParameterMemory> memory,
                                  std::span<std::byte> out) = 0;
  // Decodes the payload into the values of `pieces`.
  virtual Status DecodeParameters(ParameterForm form, std::span<const Piece> pieces,
                                  std::span<const std::byte> payload,
                                  std::span<const ParameterMemory> memory) = 0;

  // --- Sparse pieces. Bit k of `bitmap` stands for position k, the index of an element
  // (codec/tagc/select.h). Values are in the order of the set positions.
  //
  // Returns true if no number is NaN or infinite.
  virtual StatusOr<bool> AllFinite(std::span<const float> numbers) = 0;
  // Adds `gradient` to `residual`; where the sum is not finite, the residual becomes the gradient.
  // Then sets in `bitmap` the bits of the `keep` largest residuals by magnitude (tagc::Select).
  virtual Status AddAndSelect(std::span<const float> gradient, std::span<float> residual,
                              uint64_t keep, std::span<uint64_t> bitmap) = 0;
  // Returns the numbers at the set positions.
  virtual StatusOr<std::vector<float>> Get(std::span<const uint64_t> bitmap,
                                           std::span<const float> numbers) = 0;
  // Sets the numbers at the set positions to `values`.
  virtual Status Put(std::span<const uint64_t> bitmap, std::span<const float> values,
                     std::span<float> numbers) = 0;
  // Divides each number by `divisor`; each result is rounded once.
  virtual Status Divide(std::span<const float> numbers, float divisor, std::span<float> out) = 0;
};

}  // namespace longhaul::replicas
