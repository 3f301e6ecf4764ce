// Rounds fp32 to bf16, up or down at random, so that the expected result is the fp32 number. A sum
// that is rounded in this way after each small addition grows correctly on average. Rounding to the
// nearest would lose the additions.
//
// Random numbers are Philox4x32-10, keyed by the seed, the step and the parameter's name. The
// counter is the index of the element. So the numbers are the same on each device and after a
// resume.
//
// Internal to worker/stage (it shows LibTorch). Thread-safe. Errors: LibTorch's exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "base/philox.h"
#include "run/file/run_spec.h"

namespace longhaul::worker {

at::ScalarType ToTorch(MomentDtype dtype);

class StochasticRounding {
 public:
  // Each element has 32 random bits, enough to round two numbers.
  enum class Half : uint8_t { kLow, kHigh };

  // `name`: name of the parameter. `step`: the optimizer step; each step rounds differently.
  StochasticRounding(uint64_t seed, uint64_t step, std::string_view name);

  // Returns the number of elements to round at a time, a multiple of 4. Their random bits and
  // temporary tensors take a few MB, on a GPU some tens of MB.
  static int64_t Piece(const at::Device& device);

  // Returns the random bits of elements [begin, begin + count), (count) int32. `begin` must be a
  // multiple of 4.
  at::Tensor Bits(int64_t begin, int64_t count, const at::Device& device) const;
  // As Bits, but uses only LibTorch's operations, which also run on GPUs.
  at::Tensor BitsByTensors(int64_t begin, int64_t count, const at::Device& device) const;

  // Rounds `from`, contiguous fp32, into `to`, bf16. Overwrites `from`. `half`: the half of each
  // element's `bits` that is used. Infinities stay infinite.
  static void Round(const at::Tensor& from, const at::Tensor& bits, Half half,
                    const at::Tensor& to);
  // Rounds the whole tensor `from` into `to`, piece by piece. Overwrites `from`.
  void RoundAll(const at::Tensor& from, const at::Tensor& to) const;

 private:
  Philox::Key key_;
};

}  // namespace longhaul::worker
