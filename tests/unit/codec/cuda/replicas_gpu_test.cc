// The kernels of gradients between replicas against the CPU's: the same bytes.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "codec/cuda/cuda_sdp4bit.h"
#include "codec/cuda/cuda_tagc.h"
#include "codec/sdp4bit/cpu/kernels.h"
#include "codec/sdp4bit/format.h"
#include "codec/tagc/select.h"
#include "tests/unit/codec/cuda/gpu_contents.h"

namespace longhaul::codec::cuda {
namespace {

template <class T>
DeviceBuffer UploadAll(const std::vector<T>& values, Stream* stream) {
  return Upload(std::as_bytes(std::span(values)), stream);
}
template <class T>
std::vector<T> DownloadAll(const DeviceBuffer& buffer, size_t count, Stream* stream) {
  const std::vector<std::byte> bytes = Download(buffer, count * sizeof(T), stream);
  std::vector<T> values(count);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
template <class T>
T* At(DeviceBuffer& buffer) {
  return static_cast<T*>(buffer.data_dev());
}

std::vector<float> Gradients(std::mt19937_64* random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  const bool coarse = (*random)() % 4 == 0;  // many are equal
  for (float& value : values) {
    value = std::pow(normal(*random), 3.0f);
    if (coarse) value = std::round(value * 2) / 2;
  }
  return values;
}

class ReplicasOnGpu : public ::testing::Test {
 protected:
  std::mt19937_64 random_{20261125};
  Stream stream_ = Must(Stream::Create(Gpu()));
};

TEST_F(ReplicasOnGpu, SectionsAreTheCpus) {
  for (int round = 0; round < 300; ++round) {
    const uint64_t count = round % 5 == 0 ? 2048 * (1 + random_() % 4) : 1 + random_() % 9000;
    std::vector<float> values = Gradients(&random_, count);
    if (round % 6 == 0) values[random_() % count] = std::numeric_limits<float>::quiet_NaN();
    if (round % 7 == 0) std::fill(values.begin(), values.end(), 0.0f);
    const uint32_t group = round % 2 == 0 ? sdp4bit::kGradientGroup : sdp4bit::kDifferenceGroup;
    const RoundingNoise noise({.seed = random_(), .step = Step(3)});
    const RoundingNoise* const rounding = round % 3 == 0 ? nullptr : &noise;
    const uint64_t first = 64 * (random_() % 1000);
    const uint64_t bytes = sdp4bit::SectionBytes(count, group);
    std::vector<std::byte> expected(bytes);
    sdp4bit::cpu::Encode(values, group, rounding, first, expected.data());
    DeviceBuffer in = UploadAll(values, &stream_);
    DeviceBuffer section = Upload(std::vector<std::byte>(bytes + kGuard, kPoison), &stream_);
    ASSERT_TRUE(
        Sdp4bitEncode(At<float>(in), count, group, rounding, first, section.data_dev(), stream_)
            .ok());
    const auto found = Download(section, bytes + kGuard, &stream_);
    ASSERT_EQ(FirstDifference(std::span(found).first(bytes), expected), -1)
        << round << ": " << count << " in groups of " << group;
    for (size_t k = bytes; k < found.size(); ++k) ASSERT_EQ(found[k], kPoison);

    std::vector<float> decoded(count);
    sdp4bit::cpu::Decode(expected.data(), group, decoded);
    DeviceBuffer out = UploadAll(std::vector<float>(count, 7.0f), &stream_);
    ASSERT_TRUE(Sdp4bitDecode(section.data_dev(), group, At<float>(out), count, stream_).ok());
    const auto numbers = DownloadAll<float>(out, count, &stream_);
    for (uint64_t k = 0; k < count; ++k) {
      ASSERT_TRUE(numbers[k] == decoded[k] || (std::isnan(numbers[k]) && std::isnan(decoded[k])));
    }
  }
}

TEST_F(ReplicasOnGpu, MeansAreTheCpus) {
  for (int round = 0; round < 60; ++round) {
    const uint64_t count = 1 + random_() % 5000;
    const uint64_t transformed = sdp4bit::Transformed(count);
    const auto replicas = static_cast<uint32_t>(1 + random_() % 5);
    const auto own = static_cast<uint32_t>(random_() % replicas);
    std::vector<DeviceBuffer> memory;
    std::vector<const void*> parts;
    std::vector<float> sum;
    for (uint32_t r = 0; r < replicas; ++r) {
      std::vector<float> values = Gradients(&random_, count);
      if (r == own) memory.push_back(UploadAll(values, &stream_));
      values.resize(transformed);
      if (r != own) {
        DeviceBuffer on_device = UploadAll(values, &stream_);
        ASSERT_TRUE(Sdp4bitTransform(At<float>(on_device), transformed, false, stream_).ok());
        sdp4bit::cpu::Transform(values);
        ASSERT_EQ(DownloadAll<float>(on_device, transformed, &stream_), values);
        std::vector<std::byte> section(sdp4bit::SectionBytes(transformed, sdp4bit::kGradientGroup));
        sdp4bit::cpu::Encode(values, sdp4bit::kGradientGroup, nullptr, 0, section.data());
        sdp4bit::cpu::Decode(section.data(), sdp4bit::kGradientGroup, values);
        memory.push_back(UploadAll(section, &stream_));
      } else {
        sdp4bit::cpu::Transform(values);
      }
      parts.push_back(memory.back().data_dev());
      if (r == 0) {
        sum = values;
      } else {
        for (uint64_t k = 0; k < transformed; ++k) sum[k] += values[k];
      }
    }
    sdp4bit::cpu::TransformBack(sum);
    sum.resize(count);
    for (float& value : sum) value /= static_cast<float>(replicas);
    DeviceBuffer out = UploadAll(std::vector<float>(count), &stream_);
    ASSERT_TRUE(Sdp4bitMean(parts, own, count, At<float>(out), stream_).ok());
    ASSERT_EQ(DownloadAll<float>(out, count, &stream_), sum) << round;
  }
}

TEST_F(ReplicasOnGpu, KeepWhatTheCpuKeeps) {
  for (int round = 0; round < 200; ++round) {
    const uint64_t count = 1 + random_() % (round % 10 == 0 ? 300'000 : 9000);
    const std::vector<float> values = Gradients(&random_, count);
    const uint64_t keep = 1 + random_() % (round % 2 == 0 ? count : count / 50 + 1);
    std::vector<uint64_t> expected(tagc::BitmapWords(count));
    tagc::Select(values, keep, expected);
    DeviceBuffer in = UploadAll(values, &stream_);
    DeviceBuffer bitmap =
        UploadAll(std::vector<uint64_t>(expected.size() + 1, ~uint64_t{0}), &stream_);
    const size_t bytes = TagcSelectScratchBytes(count);
    DeviceBuffer scratch = Upload(std::vector<std::byte>(bytes, kPoison), &stream_);
    ASSERT_TRUE(TagcSelect(At<float>(in), count, keep, At<uint64_t>(bitmap),
                           {scratch.data_dev(), bytes}, stream_)
                    .ok());
    auto found = DownloadAll<uint64_t>(bitmap, expected.size() + 1, &stream_);
    ASSERT_EQ(found.back(), ~uint64_t{0});
    found.pop_back();
    ASSERT_TRUE(found == expected) << keep << " of " << count;
  }
}

TEST_F(ReplicasOnGpu, RefuseWhatCannotBe) {
  DeviceBuffer memory = UploadAll(std::vector<float>(64), &stream_);
  EXPECT_FALSE(
      Sdp4bitEncode(At<float>(memory), 8, 64, nullptr, 0, memory.data_dev(), stream_).ok());
  EXPECT_FALSE(Sdp4bitEncode(nullptr, 8, 128, nullptr, 0, memory.data_dev(), stream_).ok());
  EXPECT_FALSE(Sdp4bitDecode(At<char>(memory) + 4, 128, At<float>(memory), 8, stream_).ok());
  EXPECT_FALSE(Sdp4bitTransform(At<float>(memory), 33, false, stream_).ok());
  EXPECT_FALSE(Sdp4bitMean({}, 0, 8, At<float>(memory), stream_).ok());
  EXPECT_FALSE(TagcSelect(At<float>(memory), 8, 9, At<uint64_t>(memory),
                          {memory.data_dev(), memory.size()}, stream_)
                   .ok());
  EXPECT_FALSE(
      TagcSelect(At<float>(memory), 8, 1, At<uint64_t>(memory), {memory.data_dev(), 16}, stream_)
          .ok());
}

}  // namespace
}  // namespace longhaul::codec::cuda
