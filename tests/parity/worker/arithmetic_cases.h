// What every arithmetic of an exchange between replicas has to give: the bytes and numbers of the
// CPU's plain one.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "codec/rounding.h"
#include "codec/tagc/select.h"
#include "transport/replicas/arithmetic.h"
#include "transport/replicas/dense.h"
#include "transport/replicas/host_arithmetic.h"

namespace longhaul::testing {

// The numbers of a stage with three parameters, in the memory of an arithmetic. This replica owns a
// piece of each. `seed` decides the numbers.
class ExchangedNumbers {
 public:
  ExchangedNumbers(replicas::Arithmetic* arithmetic, uint32_t seed) : arithmetic_(*arithmetic) {
    std::mt19937 random(seed);
    for (const uint64_t elements : {70'001, 64, 33'000}) {
      gradients_.push_back(Filled(elements, 1, &random));
      values_.push_back(Filled(elements, 10, &random));
      residuals_.push_back(Filled(elements, 0.1f, &random));
      nothing_.emplace_back();
    }
    for (const replicas::Piece& piece : Pieces()) {
      means_.push_back(*arithmetic_.Make(piece.count));
      masters_.push_back(Filled(piece.count, 10, &random));
      own_.push_back({piece, means_.back().span, masters_.back().span});
    }
  }

  static std::vector<replicas::Piece> Pieces() {
    return {{.parameter = 0, .first = 4'096, .count = 60'001, .at = 0},
            {.parameter = 1, .first = 0, .count = 64, .at = 60'032},
            {.parameter = 2, .first = 2'048, .count = 30'952, .at = 60'096}};
  }
  std::vector<replicas::ParameterMemory> memory() const {
    std::vector<replicas::ParameterMemory> memory;
    for (size_t k = 0; k < values_.size(); ++k) {
      memory.push_back({gradients_[k].span, values_[k].span});
    }
    return memory;
  }
  const replicas::Residuals& residuals(bool feedback) const {
    return feedback ? residuals_ : nothing_;
  }
  std::span<const replicas::OwnPiece> own() const { return own_; }
  std::span<float> gradient(size_t parameter) { return gradients_[parameter].span; }
  std::span<float> residual(size_t parameter) { return residuals_[parameter].span; }

  // In the host's memory.
  std::vector<std::vector<float>> ReadAll() const {
    std::vector<std::vector<float>> all;
    for (const auto* some : {&gradients_, &values_, &residuals_, &means_, &masters_}) {
      for (const replicas::Numbers& one : *some) all.push_back(Read(one.span));
    }
    return all;
  }
  std::vector<float> Read(std::span<const float> numbers) const {
    std::vector<float> in_host(numbers.size());
    EXPECT_TRUE(arithmetic_.Read(numbers, in_host).ok());
    return in_host;
  }

 private:
  // Heavy tails, as gradients have.
  replicas::Numbers Filled(uint64_t count, float scale, std::mt19937* random) {
    std::normal_distribution<float> normal;
    std::vector<float> in_host(count);
    for (float& number : in_host) {
      const float x = normal(*random);
      number = x * x * x * scale;
    }
    auto numbers = arithmetic_.Make(count);
    EXPECT_TRUE(numbers.ok()) << numbers.status();
    EXPECT_TRUE(arithmetic_.Write(in_host, numbers->span).ok());
    return *numbers;
  }

  replicas::Arithmetic& arithmetic_;
  std::vector<replicas::Numbers> gradients_, values_, means_, masters_;
  replicas::Residuals residuals_, nothing_;
  std::vector<replicas::OwnPiece> own_;
};

inline void ExpectSameBits(const ExchangedNumbers& expected, const ExchangedNumbers& tested) {
  const auto all = expected.ReadAll(), others = tested.ReadAll();
  ASSERT_EQ(all.size(), others.size());
  for (size_t k = 0; k < all.size(); ++k) {
    if (all[k] == others[k]) continue;
    for (size_t i = 0; i < all[k].size(); ++i) {
      if (std::isnan(all[k][i]) && std::isnan(others[k][i])) continue;
      ASSERT_EQ(all[k][i], others[k][i]) << "numbers " << k << ", " << i;
    }
  }
}

// All that travels densely, and what is made of it.
inline void ExpectDenseIsTheHosts(replicas::Arithmetic* tested, uint32_t seed) {
  using replicas::GradientForm, replicas::ParameterForm;
  replicas::HostArithmetic host;
  const auto pieces = ExchangedNumbers::Pieces();
  for (const GradientForm form :
       {GradientForm::kFp32, GradientForm::kBf16, GradientForm::kSdp4bit}) {
    for (const bool feedback : {false, true}) {
      SCOPED_TRACE(static_cast<int>(form));
      ExchangedNumbers in_host(&host, seed), there(tested, seed);
      std::vector<std::vector<std::byte>> payloads;
      for (uint64_t step = 1; step <= 2; ++step) {
        const codec::RoundingNoise noise({.seed = seed, .step = Step(step)});
        std::vector<std::byte> expected(GradientBytes(form, pieces)), got(expected.size());
        ASSERT_TRUE(host.EncodeGradients(form, pieces, in_host.memory(), noise,
                                         in_host.residuals(feedback), expected)
                        .ok());
        const Status status = tested->EncodeGradients(form, pieces, there.memory(), noise,
                                                      there.residuals(feedback), got);
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(expected, got);
        ExpectSameBits(in_host, there);
        payloads.push_back(expected);
      }
      // Three replicas, of which this is the second.
      const std::vector<std::span<const std::byte>> all = {payloads[0], {}, payloads[1]};
      ASSERT_TRUE(host.ReduceGradients(form, in_host.own(), in_host.memory(), all).ok());
      ASSERT_TRUE(tested->ReduceGradients(form, there.own(), there.memory(), all).ok());
      ExpectSameBits(in_host, there);
    }
  }
  for (const ParameterForm form :
       {ParameterForm::kFp32, ParameterForm::kBf16, ParameterForm::kDifference4}) {
    ExchangedNumbers in_host(&host, seed), there(tested, seed);
    std::vector<std::byte> expected(ParameterBytes(form, pieces)), got(expected.size());
    ASSERT_TRUE(host.EncodeParameters(form, in_host.own(), in_host.memory(), expected).ok());
    ASSERT_TRUE(tested->EncodeParameters(form, there.own(), there.memory(), got).ok());
    ASSERT_EQ(expected, got);
    ExpectSameBits(in_host, there);
    // Another replica, with other values.
    ExchangedNumbers in_other(&host, seed + 1), there_too(tested, seed + 1);
    ASSERT_TRUE(host.DecodeParameters(form, pieces, expected, in_other.memory()).ok());
    ASSERT_TRUE(tested->DecodeParameters(form, pieces, expected, there_too.memory()).ok());
    ExpectSameBits(in_other, there_too);
  }
}

inline void ExpectSparseIsTheHosts(replicas::Arithmetic* tested, uint32_t seed) {
  replicas::HostArithmetic host;
  ExchangedNumbers in_host(&host, seed), there(tested, seed);
  for (size_t k = 0; k < 3; ++k) {
    const uint64_t count = in_host.gradient(k).size();
    EXPECT_TRUE(*tested->AllFinite(there.gradient(k)));
    std::vector<uint64_t> expected(codec::tagc::BitmapWords(count)), got(expected);
    for (const uint64_t keep : {uint64_t{1}, count / 50 + 1, count}) {
      ASSERT_TRUE(host.AddAndSelect(in_host.gradient(k), in_host.residual(k), keep, expected).ok());
      const Status status = tested->AddAndSelect(there.gradient(k), there.residual(k), keep, got);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(expected, got);
      const std::vector<float> kept = *host.Get(expected, in_host.residual(k));
      ASSERT_EQ(kept.size(), keep);
      ASSERT_EQ(kept, *tested->Get(got, there.residual(k)));
      const std::vector<float> left(kept.size(), 0.25f);
      ASSERT_TRUE(host.Put(expected, left, in_host.residual(k)).ok());
      ASSERT_TRUE(tested->Put(got, left, there.residual(k)).ok());
      ExpectSameBits(in_host, there);
    }
  }
  for (const float divisor : {3.0f, std::numeric_limits<float>::quiet_NaN()}) {
    ASSERT_TRUE(host.Divide(in_host.gradient(0), divisor, in_host.residual(0)).ok());
    ASSERT_TRUE(tested->Divide(there.gradient(0), divisor, there.residual(0)).ok());
    ExpectSameBits(in_host, there);
  }
  EXPECT_FALSE(*tested->AllFinite(there.residual(0)));
  // Where a sum is not finite the gradient stays.
  std::vector<uint64_t> bitmap(codec::tagc::BitmapWords(in_host.gradient(0).size()));
  ASSERT_TRUE(host.AddAndSelect(in_host.gradient(0), in_host.residual(0), 5, bitmap).ok());
  ASSERT_TRUE(tested->AddAndSelect(there.gradient(0), there.residual(0), 5, bitmap).ok());
  ExpectSameBits(in_host, there);
}

inline void ExpectSumsAreTheHosts(replicas::Arithmetic* tested, uint32_t seed) {
  replicas::HostArithmetic host;
  ExchangedNumbers in_host(&host, seed), there(tested, seed);
  std::vector<std::span<const float>> numbers, others;
  for (size_t k = 0; k < 3; ++k) {
    numbers.emplace_back(in_host.gradient(k));
    others.emplace_back(there.gradient(k));
  }
  const double expected = *host.SumOfSquares(numbers);
  EXPECT_GT(expected, 0);
  EXPECT_NEAR(*tested->SumOfSquares(others), expected, 1e-12 * expected);
  EXPECT_EQ(*tested->SumOfSquares(others), *tested->SumOfSquares(others));
  EXPECT_EQ(*tested->SumOfSquares({}), 0);
  ASSERT_TRUE(tested->Copy(there.gradient(2), there.residual(2)).ok());
  EXPECT_EQ(there.Read(there.residual(2)), in_host.Read(in_host.gradient(2)));
  ASSERT_TRUE(tested->Fill(2.5f, there.residual(2)).ok());
  EXPECT_EQ(there.Read(there.residual(2)), std::vector<float>(in_host.gradient(2).size(), 2.5f));
}

}  // namespace longhaul::testing
