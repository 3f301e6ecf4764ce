// The bodies of the control messages between stages: their version is the tensor header's.
#include <gmock/gmock.h>

#include <array>
#include <cstddef>
#include <span>

#include "proto/wire/matrix_digest.h"
#include "proto/wire/message_state.h"
#include "proto/wire/step_message.h"
#include "proto/wire/tensor_header.h"
#include "proto/wire/transfer_word.h"
#include "tests/support/golden.h"

namespace longhaul::wire {
namespace {

using ::longhaul::testing::ExpectGolden;
using ::testing::HasSubstr;

std::array<std::byte, kStepMessageBytes> Encode(const StepMessage& message) {
  std::array<std::byte, kStepMessageBytes> bytes;
  EncodeStepMessage(message, bytes);
  return bytes;
}

// A bit for each flag, the first the lowest.
StepMessage WithFlags(unsigned flags) {
  return {.squared_norm = 1234.0625, .stop = (flags & 1) != 0, .nonfinite = (flags & 2) != 0};
}

TEST(StepMessageTest, GoldenBytes) {
  std::vector<std::byte> bytes;
  for (unsigned flags = 0; flags < 4; ++flags) {
    const auto message = Encode(WithFlags(flags));
    bytes.insert(bytes.end(), message.begin(), message.end());
  }
  ExpectGolden(GOLDEN_DIR, "step_messages", kTensorVersion, bytes);
}

TEST(StepMessageTest, RoundTrip) {
  for (unsigned flags = 0; flags < 4; ++flags) {
    const auto message = DecodeStepMessage(Encode(WithFlags(flags)));
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(*message, WithFlags(flags));
  }
}

TEST(StepMessageTest, RefusesOtherSizesAndUnknownFlags) {
  const auto good = Encode(WithFlags(3));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(DecodeStepMessage(std::span(good).first(size)).ok()) << size;
  }
  for (const size_t at : {size_t{8}, size_t{11}, size_t{12}, size_t{15}}) {
    auto bytes = good;
    bytes[at] |= std::byte{8};
    EXPECT_THAT(std::string(Message(DecodeStepMessage(bytes).status())),
                HasSubstr("unknown flags"));
  }
}

TEST(MessageStateTest, GoldenBytesComeBack) {
  const MessageState state{.forward = 0x0102030405060708, .backward = 0x1112131415161718};
  std::array<std::byte, kMessageStateBytes> bytes;
  EncodeMessageState(state, bytes);
  ExpectGolden(GOLDEN_DIR, "message_state", kTensorVersion, bytes);
  const auto decoded = DecodeMessageState(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, state);
  EXPECT_THAT(std::string(Message(DecodeMessageState(std::span(bytes).first(15)).status())),
              HasSubstr("expected 16 bytes, got 15"));
}

TEST(MatrixDigestTest, GoldenBytesComeBack) {
  std::array<std::byte, kMatrixDigestBytes> bytes;
  EncodeMatrixDigest(0x0102030405060708, bytes);
  ExpectGolden(GOLDEN_DIR, "matrix_digest", kTensorVersion, bytes);
  const auto decoded = DecodeMatrixDigest(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, 0x0102030405060708u);
  EXPECT_THAT(std::string(Message(DecodeMatrixDigest(std::span(bytes).first(7)).status())),
              HasSubstr("expected 8 bytes, got 7"));
}

TEST(TransferWordTest, GoldenBytesComeBack) {
  const TransferWord further{.may_go_to = 0x0102030405060708, .kept = false, .refusal = {}};
  EXPECT_EQ(EncodeTransferWord(further), "\x08\x07\x06\x05\x04\x03\x02\x01");
  EXPECT_EQ(EncodeTransferWord({.may_go_to = 0, .kept = true, .refusal = {}}),
            std::string(8, '\xff'));
  const auto decode = [](const std::string& bytes) {
    return DecodeTransferWord(std::as_bytes(std::span(bytes)));
  };
  EXPECT_EQ(decode(EncodeTransferWord(further)), further);
  EXPECT_TRUE(decode(std::string(8, '\xff')).kept);
  EXPECT_EQ(decode("no room on the disk").refusal, "no room on the disk");
  // No text is taken for a number, no text is empty, none is endless.
  EXPECT_EQ(decode(EncodeTransferWord({.refusal = "too full"})).refusal, "too full ");
  EXPECT_NE(decode("").refusal, "");
  EXPECT_EQ(decode(std::string(100'000, 'x')).refusal.size(), kMaxRefusalBytes);
}

}  // namespace
}  // namespace longhaul::wire
