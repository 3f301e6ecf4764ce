// Dropout of what LoRA's adapters read: in training, each number of an adapted product's input is
// dropped with the same probability, before it is multiplied by A. The others are multiplied by 1 /
// (1 - probability). Nothing is dropped in validation and generation.
//
// Which numbers are dropped follows from the pass's random number, the name of the product, and the
// number's row and channel, by hashing integers. So the same numbers are dropped where a pass is
// computed again, on each device, after a resume, and on all ranks that hold the same input.
// Backward computes the mask again, so no mask is kept.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace longhaul::worker {

class Dropout {
 public:
  // What a pass has drawn, in tensors of its device, as CUDA graphs need.
  struct Draw {
    at::Tensor rows;    // (rows of the pass) int32: a hash of each
    at::Tensor least;   // int32 scalar: numbers whose hash is less are dropped
    at::Tensor factor;  // fp32 scalar: of the numbers that are not dropped
    // Sets the dropped numbers of each of `inputs` to 0; all are (rows of a product, channels).
    // `channels`: the result of ChannelsOf, on the pass's device.
    void Drop(const at::Tensor& channels, at::ArrayRef<at::Tensor> inputs) const;
  };
  // A random number that stands for "drop nothing".
  static constexpr int64_t kNothing = -1;

  // `share`: the probability, from 0 up to but not including 1.
  explicit Dropout(double share) : share_(share) {}

  // Returns the random number of a slice; not negative. `of_microbatch`: Stage::Input::random.
  static int64_t RandomOf(uint64_t of_microbatch, uint32_t slice);
  // Returns a hash for each channel, (channels) int32, on the CPU. `name`: of the product. `ids`:
  // the channels' numbers in the whole model.
  static at::Tensor ChannelsOf(std::string_view name, std::span<const int64_t> ids);

  // Until the Pass is destroyed, products drop by `random`, an int64 scalar on the model's device;
  // undefined: nothing is dropped. `rows`: the most rows of a product. `dropout` may be null.
  class Pass {
   public:
    Pass(Dropout* dropout, const at::Tensor& random, int64_t rows);
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Dropout* const dropout_;
  };
  // What the current pass has drawn; null: nothing is dropped. Valid until the pass ends.
  const Draw* current() const { return current_ ? &*current_ : nullptr; }

 private:
  Draw DrawOf(const at::Tensor& random, int64_t rows) const;

  const double share_;
  std::optional<Draw> current_;
};

}  // namespace longhaul::worker
