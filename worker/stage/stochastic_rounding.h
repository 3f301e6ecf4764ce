// From fp32 to bf16, up or down with probabilities that keep the mean: a sum that is rounded so
// after each small addition grows as it should, where rounding to the nearest would lose them all.
//
// Random numbers are Philox4x32-10 keyed by (seed, step, name), with the element as counter: the
// same on every device, and after a resume.
//
// Internal to worker/stage (it shows LibTorch). Pure. Errors: LibTorch's exceptions.
#ifndef LONGHAUL_WORKER_STAGE_STOCHASTIC_ROUNDING_H_
#define LONGHAUL_WORKER_STAGE_STOCHASTIC_ROUNDING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "base/philox.h"
#include "run/file/run_spec.h"

namespace longhaul::worker {

at::ScalarType ToTorch(MomentDtype dtype);

class StochasticRounding {
 public:
  // Each element has 32 random bits, enough for two numbers.
  enum class Half : uint8_t { kLow, kHigh };

  // `name`: the parameter's.
  StochasticRounding(uint64_t seed, uint64_t step, std::string_view name);

  // As many elements as should be rounded at once: a multiple of 4, for which Bits and what its
  // caller has beside it take some MB, on a GPU some tens.
  static int64_t Piece(const at::Device& device);

  // Of the elements from `begin` on, int32 (count). `begin`: a multiple of 4.
  at::Tensor Bits(int64_t begin, int64_t count, const at::Device& device) const;
  // As Bits, by LibTorch's operations alone, which GPUs have.
  at::Tensor BitsByTensors(int64_t begin, int64_t count, const at::Device& device) const;

  // `from` (fp32, contiguous) is overwritten by what is then in `to` (bf16). What is infinite stays
  // so.
  static void Round(const at::Tensor& from, const at::Tensor& bits, Half half,
                    const at::Tensor& to);
  // All elements of a tensor, piece by piece.
  void RoundAll(const at::Tensor& from, const at::Tensor& to) const;

 private:
  Philox::Key key_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_STOCHASTIC_ROUNDING_H_
