#include "worker/stage/optimizer/stochastic_rounding.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>
#include <string>

#include "base/hash.h"

namespace longhaul::worker {
namespace {

constexpr int64_t kPieceOnCpu = int64_t{1} << 18, kPieceOnGpu = int64_t{1} << 21;
constexpr int64_t kBlocksOfAThread = 1 << 12;
constexpr int64_t kLow32 = 0xFFFFFFFF;

// Philox4x32's, of Salmon et al.
constexpr int64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

// Products wrap in int64, whose bits are those of the unsigned product.
at::Tensor LowHalf(const at::Tensor& product) {
  return product.bitwise_and(kLow32);
}
at::Tensor HighHalf(const at::Tensor& product) {
  return product.bitwise_right_shift(32).bitwise_and_(kLow32);
}

}  // namespace

at::ScalarType ToTorch(MomentDtype dtype) {
  return dtype == MomentDtype::kBf16 ? at::kBFloat16 : at::kFloat;
}

StochasticRounding::StochasticRounding(uint64_t seed, uint64_t step, std::string_view name) {
  const std::string all = fmt::format("rounding of moments {} {} {}", seed, step, name);
  const uint64_t hash = Checksum64(std::as_bytes(std::span(all)));
  key_ = {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
}

int64_t StochasticRounding::Piece(const at::Device& device) {
  return device.is_cpu() ? kPieceOnCpu : kPieceOnGpu;
}

at::Tensor StochasticRounding::Bits(int64_t begin, int64_t count, const at::Device& device) const {
  if (!device.is_cpu()) return BitsByTensors(begin, count, device);
  const int64_t blocks = (count + 3) / 4;
  at::Tensor bits = at::empty({4 * blocks}, at::kInt);
  auto* const words = bits.data_ptr<int32_t>();
  at::parallel_for(0, blocks, kBlocksOfAThread, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const auto block = static_cast<uint64_t>(begin / 4 + i);
      const Philox::Counter random = Philox::Generate(
          {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, key_);
      for (int64_t word = 0; word < 4; ++word) {
        words[4 * i + word] = std::bit_cast<int32_t>(random[static_cast<size_t>(word)]);
      }
    }
  });
  return bits.narrow(0, 0, count);
}

at::Tensor StochasticRounding::BitsByTensors(int64_t begin, int64_t count,
                                             const at::Device& device) const {
  const at::NoGradGuard no_grad;
  const at::Tensor block =
      at::arange(begin / 4, (begin + count + 3) / 4, at::TensorOptions(at::kLong).device(device));
  at::Tensor counter0 = LowHalf(block), counter1 = HighHalf(block);
  at::Tensor counter2 = at::zeros_like(block), counter3 = at::zeros_like(block);
  uint32_t key0 = key_[0], key1 = key_[1];
  for (int round = 0; round < kRounds; ++round) {
    const at::Tensor product0 = counter0.mul(kMultiplier0), product1 = counter2.mul(kMultiplier1);
    counter0 = HighHalf(product1).bitwise_xor_(counter1).bitwise_xor_(int64_t{key0});
    counter2 = HighHalf(product0).bitwise_xor_(counter3).bitwise_xor_(int64_t{key1});
    counter1 = LowHalf(product1);
    counter3 = LowHalf(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return at::stack({counter0, counter1, counter2, counter3}, 1)
      .view({-1})
      .narrow(0, 0, count)
      .to(at::kInt);
}

void StochasticRounding::Round(const at::Tensor& from, const at::Tensor& bits, Half half,
                               const at::Tensor& to) {
  constexpr int64_t kDropped = 0xFFFF;  // of a float's bits
  at::Tensor whole = from.view(at::kInt);
  const at::Tensor random = half == Half::kLow ? bits : bits.bitwise_right_shift(16);
  // Up where the random number and what is dropped carry over; of negative numbers, whose bits are
  // sign and magnitude, away from zero.
  whole.add_(random.bitwise_and(kDropped)).bitwise_and_(~kDropped);
  to.copy_(from);
}

void StochasticRounding::RoundAll(const at::Tensor& from, const at::Tensor& to) const {
  const at::Tensor values = from.view({-1}), rounded = to.view({-1});
  const int64_t piece = Piece(from.device());
  for (int64_t begin = 0; begin < values.numel(); begin += piece) {
    const int64_t count = std::min(piece, values.numel() - begin);
    Round(values.narrow(0, begin, count), Bits(begin, count, from.device()), Half::kLow,
          rounded.narrow(0, begin, count));
  }
}

}  // namespace longhaul::worker
