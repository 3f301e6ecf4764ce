#include "worker/stage/model/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/hash.h"

namespace longhaul::worker {
namespace {

// SplitMix64's. Products wrap; the bits of a signed product are those of the unsigned one.
constexpr uint64_t kSplitMixStep = 0x9E3779B97F4A7C15, kSplitMix1 = 0xBF58476D1CE4E5B9,
                   kSplitMix2 = 0x94D049BB133111EB;
// Elements of a mask that are made at a time, so that the integers take little memory.
constexpr int64_t kMaskOnCpu = int64_t{1} << 16, kMaskOnGpu = int64_t{1} << 22;
// Multipliers of a 32-bit mixer by Wellons; the second one is negative as int32.
constexpr int64_t kMixBits1 = 0x7FEB352D, kMixBits2 = int64_t{0x846CA68B} - (int64_t{1} << 32);

uint64_t SplitMixed(uint64_t number) {
  number = (number ^ (number >> 30)) * kSplitMix1;
  number = (number ^ (number >> 27)) * kSplitMix2;
  return number ^ (number >> 31);
}

// The same by tensors of int64. Their shift to the right keeps the sign, so the sign's copies are
// masked.
at::Tensor& SplitMixInPlace(at::Tensor& numbers) {
  const auto shifted = [&](int64_t bits) {
    return numbers.bitwise_right_shift(bits).bitwise_and_((int64_t{1} << (64 - bits)) - 1);
  };
  numbers.bitwise_xor_(shifted(30)).mul_(static_cast<int64_t>(kSplitMix1));
  numbers.bitwise_xor_(shifted(27)).mul_(static_cast<int64_t>(kSplitMix2));
  return numbers.bitwise_xor_(shifted(31));
}

}  // namespace

int64_t Dropout::RandomOf(uint64_t of_microbatch, uint32_t slice) {
  return static_cast<int64_t>(SplitMixed(of_microbatch + kSplitMixStep * (slice + uint64_t{1})) >>
                              1);
}

at::Tensor Dropout::ChannelsOf(std::string_view name, std::span<const int64_t> ids) {
  const uint64_t key = Checksum64(std::as_bytes(std::span(name)));
  std::vector<int32_t> hashes;
  hashes.reserve(ids.size());
  for (const int64_t id : ids) {
    const uint64_t hash = SplitMixed(key + kSplitMixStep * (static_cast<uint64_t>(id) + 1));
    hashes.push_back(static_cast<int32_t>(static_cast<uint32_t>(hash >> 32)));
  }
  return at::tensor(hashes, at::kInt);
}

Dropout::Draw Dropout::DrawOf(const at::Tensor& random, int64_t rows) const {
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min(), kRange = (int64_t{1} << 32) - 1;
  const auto dropped = std::min<int64_t>(std::llround(std::ldexp(share_, 32)), kRange);
  const at::Tensor drops = random.ge(0);
  at::Tensor hashes =
      at::arange(rows, random.options()).mul_(static_cast<int64_t>(kSplitMixStep)).add_(random);
  SplitMixInPlace(hashes);
  return {.rows = hashes.bitwise_right_shift(32).to(at::kInt),
          .least = drops.to(at::kLong).mul_(dropped).add_(kLeast).to(at::kInt),
          .factor = drops.to(at::kFloat).mul_(share_ / (1 - share_)).add_(1)};
}

void Dropout::Draw::Drop(const at::Tensor& channels, at::ArrayRef<at::Tensor> inputs) const {
  const int64_t count = inputs.front().size(0);
  const int64_t piece = std::max<int64_t>(
      1, (channels.is_cpu() ? kMaskOnCpu : kMaskOnGpu) / std::max<int64_t>(channels.numel(), 1));
  for (int64_t begin = 0; begin < count; begin += piece) {
    const int64_t here = std::min(piece, count - begin);
    at::Tensor bits = rows.narrow(0, begin, here).unsqueeze(1).bitwise_xor(channels.unsqueeze(0));
    bits.mul_(kMixBits1);
    bits.bitwise_xor_(bits.bitwise_right_shift(15).bitwise_and_((int64_t{1} << 17) - 1));
    const at::Tensor keep = bits.mul_(kMixBits2).ge(least);
    for (const at::Tensor& input : inputs) input.narrow(0, begin, here).mul_(keep);
  }
}

Dropout::Pass::Pass(Dropout* dropout, const at::Tensor& random, int64_t rows) : dropout_(dropout) {
  if (dropout_ != nullptr && random.defined()) dropout_->current_ = dropout_->DrawOf(random, rows);
}

Dropout::Pass::~Pass() {
  if (dropout_ != nullptr) dropout_->current_.reset();
}

}  // namespace longhaul::worker
