#include "proto/wire/link_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/hash.h"
#include "proto/wire/little_endian.h"
#include "tests/support/golden.h"

namespace longhaul::wire {
namespace {

using ::testing::HasSubstr;
using Bytes = std::array<std::byte, kLinkHeaderBytes>;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

LinkHeader Example() {
  return {.kind = LinkKind::kData,
          .lane = 1,
          .sequence = 0x0102030405060708,
          .acknowledgement = 0x1112131415161718,
          .credits = 0x222324,
          .following = 0x21,
          .link_id = 0x3132333435363738};
}

Bytes Encode(const LinkHeader& header, const std::string& payload) {
  Bytes out;
  EncodeLinkHeader(header, BytesOf(payload), {}, out);
  return out;
}

TEST(LinkHeaderTest, GoldenBytes) {
  longhaul::testing::ExpectGolden(GOLDEN_DIR, "link_header", kLinkVersionMax,
                                  Encode(Example(), "payload"));
  for (uint16_t version = kLinkVersionMin; version < kLinkVersionMax; ++version) {
    LinkHeader old = Example();
    old.version = version;
    old.credits = 0x21222324;
    longhaul::testing::ExpectGolden(GOLDEN_DIR, "link_header", version, Encode(old, "payload"));
  }
}

TEST(LinkHeaderTest, AnOldFrameHasLargerCreditsAndNothingFollows) {
  LinkHeader header = Example();
  header.version = kLinkVersionOfFollowing - 1;
  header.credits = 0x21222324;
  const std::string payload = "payload";
  const Bytes bytes = Encode(header, payload);
  const auto decoded = DecodeLinkHeader(bytes, BytesOf(payload));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->credits, 0x21222324u);
  EXPECT_EQ(decoded->following, 0);
  EXPECT_EQ(BytesFollowing(bytes), 0u);
}

TEST(LinkHeaderTest, BytesFollowingAreThoseOfWholeFrames) {
  const std::string payload(1000, 'p');
  EXPECT_EQ(BytesFollowing(Encode(Example(), payload)), 0x21 * (kLinkHeaderBytes + 1000));
}

// The tag is for whoever seals it; a checksum would tell of what he encrypts.
TEST(LinkHeaderTest, OfASealedFrameHasNoChecksum) {
  const std::string payload(1000, 'p');
  Bytes bytes;
  EncodeLinkHeader(Example(), BytesOf(payload), {}, bytes, LinkGuard::kSeal);
  EXPECT_EQ(GetLe<uint64_t>(bytes, 32), 0u);
  EXPECT_EQ(DecodeLinkHeader(bytes, BytesOf(payload)).status().code(), absl::StatusCode::kDataLoss);
  const auto decoded = DecodeLinkHeader(bytes, BytesOf(payload), LinkGuard::kSeal);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->sequence, Example().sequence);
}

// The checksum is XXH3-64 of the header with checksum and tag zero, then the payload.
TEST(LinkHeaderTest, ChecksumByDefinition) {
  const std::string payload(3000, 'p');
  Bytes bytes = Encode(Example(), payload);
  const auto stated = GetLe<uint64_t>(bytes, 32);
  PutLe<uint64_t>(bytes, 32, 0);
  EXPECT_EQ(stated, Checksum64(bytes, BytesOf(payload)));
}

TEST(LinkHeaderTest, RoundTrip) {
  const std::string payload(1000, 'p');
  const auto decoded = DecodeLinkHeader(Encode(Example(), payload), BytesOf(payload));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->kind, LinkKind::kData);
  EXPECT_EQ(decoded->lane, 1);
  EXPECT_EQ(decoded->sequence, Example().sequence);
  EXPECT_EQ(decoded->acknowledgement, Example().acknowledgement);
  EXPECT_EQ(decoded->credits, Example().credits);
  EXPECT_EQ(decoded->following, Example().following);
  EXPECT_EQ(decoded->link_id, Example().link_id);
  EXPECT_EQ(decoded->payload_bytes, payload.size());
}

TEST(LinkHeaderTest, WherePayloadIsCutDoesNotMatter) {
  const std::string payload = "header and body";
  Bytes cut;
  EncodeLinkHeader(Example(), BytesOf(payload).first(6), BytesOf(payload).subspan(6), cut);
  EXPECT_EQ(cut, Encode(Example(), payload));
}

TEST(LinkHeaderTest, TheTagIsNotChecked) {
  Bytes bytes = Encode(Example(), "payload");
  bytes[60] = std::byte{9};
  const std::string payload = "payload";
  EXPECT_TRUE(DecodeLinkHeader(bytes, BytesOf(payload)).ok());
}

TEST(LinkHeaderTest, EveryFlippedBitIsNoticed) {
  const std::string payload = "payload";
  const Bytes good = Encode(Example(), payload);
  for (size_t bit = 0; bit < 48 * 8; ++bit) {
    Bytes bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    const Status status = DecodeLinkHeader(bytes, BytesOf(payload)).status();
    const auto version = GetLe<uint16_t>(bytes, 4);
    const bool spoken = version >= kLinkVersionMin && version <= kLinkVersionMax;
    const auto expected = bit < 32  ? absl::StatusCode::kInvalidArgument  // magic
                          : !spoken ? absl::StatusCode::kUnimplemented
                                    : absl::StatusCode::kDataLoss;
    EXPECT_EQ(status.code(), expected) << "bit " << bit << ": " << status;
  }
  for (size_t bit = 0; bit < payload.size() * 8; ++bit) {
    std::string damaged = payload;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(DecodeLinkHeader(good, BytesOf(damaged)).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(LinkHeaderTest, OtherSizes) {
  const std::string payload = "payload";
  const Bytes bytes = Encode(Example(), payload);
  for (size_t size = 0; size < kLinkHeaderBytes; ++size) {
    EXPECT_EQ(DecodeLinkHeader(std::span(bytes).first(size), BytesOf(payload)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(LinkHeaderTest, KindsThatThereAreNot) {
  for (const int kind : {0, 8, 255}) {
    LinkHeader header = Example();
    header.kind = static_cast<LinkKind>(kind);
    const Status status = DecodeLinkHeader(Encode(header, ""), {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(Message(status)), HasSubstr("kind 1 to 7"));
  }
}

TEST(LinkHeaderTest, LanesThatThereAreNot) {
  LinkHeader header = Example();
  header.lane = 2;
  const Status status = DecodeLinkHeader(Encode(header, ""), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("lane 0 or 1"));
}

TEST(LinkHeaderTest, OtherVersionsNameTheRange) {
  for (const uint16_t version : {0, 1, 5, 65535}) {
    LinkHeader header = Example();
    header.version = version;
    const Status status = DecodeLinkHeader(Encode(header, ""), {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(Message(status)), HasSubstr("versions 2 to 4"));
    EXPECT_THAT(std::string(Message(status)), HasSubstr(std::to_string(version)));
  }
}

// The checksum is right, the length is not what came: only a peer with another idea of frames.
TEST(LinkHeaderTest, PayloadOfAnotherLength) {
  Bytes bytes = Encode(Example(), "payload");
  const std::string longer = "payload and more";
  EXPECT_FALSE(DecodeLinkHeader(bytes, BytesOf(longer)).ok());
  EXPECT_FALSE(DecodeLinkHeader(bytes, {}).ok());
}

}  // namespace
}  // namespace longhaul::wire
