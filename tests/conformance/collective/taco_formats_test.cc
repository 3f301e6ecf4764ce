// taco's collectives in every format and block size against Algorithm 1 of the paper in double
// precision (codec/taco/reference.h), for 2, 3 and 4 ranks.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/half.h"
#include "codec/taco/flat.h"
#include "codec/taco/reference.h"
#include "transport/collective/host/factory.h"
#include "transport/collective/taco/factory.h"

namespace longhaul::collective {
namespace {

using codec::taco::Params;
using Values = std::vector<double>;

constexpr absl::Duration kJoinLimit = absl::Seconds(60);
// A number in the middle of two codes may become either.
constexpr double kOddCodes = 2e-3;
constexpr double kBf16Rounding = 2e-3;

std::vector<float> Drawn(uint64_t count, uint32_t seed, Dtype dtype) {
  std::mt19937 random(seed);
  std::student_t_distribution<double> student(3);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(student(random));
    if (dtype == Dtype::kBf16) value = Bf16ToF32(F32ToBf16(value));
  }
  return values;
}

std::vector<std::byte> Packed(const std::vector<float>& values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * BytesPerElement(dtype));
  for (size_t k = 0; k < values.size(); ++k) {
    const uint16_t half = F32ToBf16(values[k]);
    if (dtype == Dtype::kF32) {
      std::memcpy(&bytes[4 * k], &values[k], 4);
    } else {
      std::memcpy(&bytes[2 * k], &half, 2);
    }
  }
  return bytes;
}

Values Unpacked(const std::vector<std::byte>& bytes, Dtype dtype) {
  Values values(bytes.size() / BytesPerElement(dtype));
  for (size_t k = 0; k < values.size(); ++k) {
    float value = 0;
    uint16_t half = 0;
    if (dtype == Dtype::kF32) {
      std::memcpy(&value, &bytes[4 * k], 4);
    } else {
      std::memcpy(&half, &bytes[2 * k], 2);
      value = Bf16ToF32(half);
    }
    values[k] = value;
  }
  return values;
}

Values Coded(const Values& values, const Params& params) {
  return codec::taco::Reference(values, params).decoded_by_c;
}

Values Part(const std::vector<float>& values, uint64_t first, uint64_t count) {
  const auto begin = values.begin() + static_cast<int64_t>(std::min(first, values.size()));
  const auto end = values.begin() + static_cast<int64_t>(std::min(first + count, values.size()));
  return {begin, end};
}

// The sum of one part at its owner, who has its own numbers.
Values SumAtOwner(const std::vector<std::vector<float>>& inputs, uint32_t owner, uint64_t first,
                  uint64_t count, const Params& params) {
  Values sum;
  for (uint32_t r = 0; r < inputs.size(); ++r) {
    Values part = Part(inputs[r], first, count);
    if (r != owner) part = Coded(part, params);
    sum.resize(part.size());
    for (size_t k = 0; k < part.size(); ++k) sum[k] += part[k];
  }
  return sum;
}

Values ExpectedAllReduce(const std::vector<std::vector<float>>& inputs, const Params& params) {
  const uint64_t count = inputs[0].size();
  const auto ranks = static_cast<uint32_t>(inputs.size());
  Values all;
  if (ranks == 2) {
    all.resize(count);
    for (const std::vector<float>& input : inputs) {
      const Values coded = Coded(Part(input, 0, count), params);
      for (size_t k = 0; k < count; ++k) all[k] += coded[k];
    }
    return all;
  }
  const uint64_t step = uint64_t{ranks} * params.block;
  const uint64_t part = (count + step - 1) / step * params.block;
  for (uint32_t r = 0; r < ranks; ++r) {
    const Values sum = Coded(SumAtOwner(inputs, r, r * part, part, params), params);
    all.insert(all.end(), sum.begin(), sum.end());
  }
  return all;
}

double RelativeError(const Values& got, const Values& expected) {
  double error = 0, norm = 0;
  for (size_t k = 0; k < expected.size(); ++k) {
    error += std::pow(got[k] - expected[k], 2);
    norm += std::pow(expected[k], 2);
  }
  return std::sqrt(error / norm);
}

class TacoFormats : public ::testing::TestWithParam<uint32_t> {
 protected:
  uint32_t ranks() const { return GetParam(); }
  const Params& params() const { return params_; }

  void SetUp() override {
    auto rendezvous = Rendezvous::Open();
    ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
    rendezvous_ = *std::move(rendezvous);
    hosts_.resize(ranks());
    communicators_.resize(ranks());
    OnThreads([&](uint32_t rank) {
      const Deadline deadline = Deadline::After(kJoinLimit);
      auto member = Member::Join(rendezvous_->id(), {rank, ranks()}, deadline);
      ASSERT_TRUE(member.ok()) << member.status();
      auto host = host::Create(*member, {}, deadline);
      ASSERT_TRUE(host.ok()) << host.status();
      hosts_[rank] = *std::move(host);
    });
    ASSERT_FALSE(HasFatalFailure());
  }
  void Choose(const Params& params) {
    params_ = params;
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      auto coded =
          taco::Create(hosts_[rank], nullptr, {.format = params.format, .block = params.block});
      ASSERT_TRUE(coded.ok()) << coded.status();
      communicators_[rank] = *std::move(coded);
    }
  }
  template <class Work>
  void OnThreads(const Work& work) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < ranks(); ++rank) threads.emplace_back([&, rank] { work(rank); });
    for (std::thread& thread : threads) thread.join();
  }
  // What each rank has after `call`.
  template <class Call>
  std::vector<std::vector<std::byte>> Run(const std::vector<std::vector<float>>& inputs,
                                          uint64_t out_count, Dtype dtype, const Call& call) {
    std::vector<std::vector<std::byte>> outputs(ranks());
    OnThreads([&](uint32_t rank) {
      const std::vector<std::byte> in = Packed(inputs[rank], dtype);
      outputs[rank].resize(out_count * BytesPerElement(dtype));
      const Status called = call(*communicators_[rank], in.data(), outputs[rank].data());
      EXPECT_TRUE(called.ok()) << called;
    });
    return outputs;
  }
  std::vector<std::vector<float>> Inputs(uint64_t count, Dtype dtype) const {
    std::vector<std::vector<float>> inputs;
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      inputs.push_back(Drawn(count, 10 + rank, dtype));
    }
    return inputs;
  }
  static void ExpectNear(const std::vector<std::byte>& got, const Values& expected, Dtype dtype) {
    const Values values = Unpacked(got, dtype);
    ASSERT_EQ(values.size(), expected.size());
    EXPECT_LE(RelativeError(values, expected),
              kOddCodes + (dtype == Dtype::kBf16 ? kBf16Rounding : 0));
  }

  void CheckAllReduce(uint64_t count, Dtype dtype);
  void CheckReduceScatter(uint64_t count, Dtype dtype);
  void CheckAllGather(uint64_t count, Dtype dtype);

 private:
  std::unique_ptr<Rendezvous> rendezvous_;
  Params params_;
  std::vector<std::shared_ptr<Communicator>> hosts_;          // by rank
  std::vector<std::unique_ptr<Communicator>> communicators_;  // by rank, over `hosts_`
};

void TacoFormats::CheckAllReduce(uint64_t count, Dtype dtype) {
  const auto inputs = Inputs(count, dtype);
  const auto got = Run(inputs, count, dtype, [&](Communicator& rank, auto* in, auto* out) {
    return rank.AllReduce(in, out, count, dtype, Reduction::kSum, {});
  });
  for (const auto& of_rank : got) EXPECT_EQ(of_rank, got[0]);
  ExpectNear(got[0], ExpectedAllReduce(inputs, params()), dtype);
}

void TacoFormats::CheckReduceScatter(uint64_t count, Dtype dtype) {
  const auto inputs = Inputs(count * ranks(), dtype);
  const auto got = Run(inputs, count, dtype, [&](Communicator& rank, auto* in, auto* out) {
    return rank.ReduceScatter(in, out, count, dtype, Reduction::kSum, {});
  });
  for (uint32_t r = 0; r < ranks(); ++r) {
    ExpectNear(got[r], SumAtOwner(inputs, r, r * count, count, params()), dtype);
  }
}

void TacoFormats::CheckAllGather(uint64_t count, Dtype dtype) {
  const auto inputs = Inputs(count, dtype);
  const auto got =
      Run(inputs, ranks() * count, dtype, [&](Communicator& rank, auto* in, auto* out) {
        const uint64_t before = rank.stats().sent_bytes;
        const Status called = rank.AllGather(in, out, count, dtype, {});
        EXPECT_EQ(rank.stats().sent_bytes - before,
                  (rank.size() - 1) * codec::TacoPayloadBytes(count, params()));
        // Plans and logs show options that are not the usual ones.
        EXPECT_EQ(rank.Describe(), params() == Params()
                                       ? "taco over host"
                                       : codec::taco::CodecString(params()) + " over host");
        return called;
      });
  Values expected;
  for (const std::vector<float>& input : inputs) {
    const Values coded = Coded(Part(input, 0, count), params());
    expected.insert(expected.end(), coded.begin(), coded.end());
  }
  for (const auto& of_rank : got) EXPECT_EQ(of_rank, got[0]);
  ExpectNear(got[0], expected, dtype);
}

INSTANTIATE_TEST_SUITE_P(Ranks, TacoFormats, ::testing::Values(2, 3, 4));

TEST_P(TacoFormats, AreTheAlgorithmOfThePaper) {
  for (const taco::Format format :
       {taco::Format::kE4m3, taco::Format::kE5m2, taco::Format::kInt8}) {
    for (const uint64_t block : {32, 64, 128, 256, 512}) {
      Choose({format, static_cast<uint32_t>(block)});
      for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
        SCOPED_TRACE(fmt::format("{}, {}", codec::taco::CodecString(params()), ToString(dtype)));
        // Parts of whole blocks, of which the last ones are shorter or empty.
        CheckAllReduce(5 * block + 7, dtype);
        CheckAllReduce(100, dtype);
        CheckReduceScatter(2 * block + 5, dtype);
        CheckAllGather(3 * block + 3, dtype);
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::collective
