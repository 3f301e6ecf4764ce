// The fuzz target over damaged frames, the same ones each time.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "proto/wire/link_header.h"
#include "transport/p2p/core/hello.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace longhaul::transport::internal {
namespace {

std::vector<std::vector<std::byte>> Seeds() {
  const LinkKey key{RunId("demo-ab12cd"), Epoch(3), EdgeId(1)};
  std::vector<std::vector<std::byte>> seeds = {
      EncodeHello({.stage = 1, .version_min = 1, .version_max = 1, .key = key}),
      EncodeHello({.stage = 2, .version_min = 1, .version_max = 9, .key = key}),
      EncodeWelcome({.stage = 1, .version = 1}),
      EncodeRefusal({.retry = true, .reason = "not expected there"}),
  };
  const size_t payloads = seeds.size();
  for (size_t i = 0; i < payloads; ++i) {
    std::vector<std::byte> frame(wire::kLinkHeaderBytes);
    wire::EncodeLinkHeader({.kind = wire::LinkKind::kHello}, seeds[i], {},
                           std::span<std::byte, wire::kLinkHeaderBytes>(frame));
    frame.insert(frame.end(), seeds[i].begin(), seeds[i].end());
    seeds.push_back(std::move(frame));
  }
  return seeds;
}

TEST(LinkFuzzSmokeTest, DamagedFrames) {
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same bytes each time
  const auto seeds = Seeds();
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes = seeds[i % seeds.size()];
    for (unsigned flips = random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << (random() % 8));
    }
    if (random() % 10 == 0) bytes.resize(random() % bytes.size());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  // The undamaged ones are good: what the target is fed is near what it accepts.
  EXPECT_TRUE(DecodeHello(seeds[0]).ok());
  EXPECT_TRUE(DecodeWelcome(seeds[2]).ok());
  EXPECT_TRUE(DecodeRefusal(seeds[3]).ok());
}

}  // namespace
}  // namespace longhaul::transport::internal
