// Rounds fp32 to bf16, up or down with probabilities that keep the mean. A sum that is rounded
// after each small addition then grows as it should; rounding to the nearest would lose the
// additions.
//
// Random numbers are Philox4x32-10 keyed by (seed, step, name), with the element as counter: the
// same on every device and after a resume.
//
// Internal to worker/stage (it shows LibTorch). Pure. Errors: LibTorch's exceptions.
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

  // `name`: the parameter's.
  StochasticRounding(uint64_t seed, uint64_t step, std::string_view name);

  // Number of elements to round at a time: a multiple of 4 whose bits and temporaries take a few
  // MB, on a GPU some tens of MB.
  static int64_t Piece(const at::Device& device);

  // Random bits of elements [begin, begin + count), int32 (count). `begin`: a multiple of 4.
  at::Tensor Bits(int64_t begin, int64_t count, const at::Device& device) const;
  // As Bits, with LibTorch's operations only, which also run on GPUs.
  at::Tensor BitsByTensors(int64_t begin, int64_t count, const at::Device& device) const;

  // Rounds `from` (fp32, contiguous; overwritten) into `to` (bf16). Infinities stay infinite.
  static void Round(const at::Tensor& from, const at::Tensor& bits, Half half,
                    const at::Tensor& to);
  // Rounds a whole tensor, piece by piece.
  void RoundAll(const at::Tensor& from, const at::Tensor& to) const;

 private:
  Philox::Key key_;
};

}  // namespace longhaul::worker
