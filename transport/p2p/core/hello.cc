#include "transport/p2p/core/hello.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/hash.h"
#include "proto/wire/little_endian.h"

namespace longhaul::transport::internal {
namespace {

using wire::GetLe;
using wire::PutLe;

constexpr size_t kHelloFixedBytes = 32 + kNonceBytes + kProofBytes;
constexpr size_t kWelcomeBytes = 16 + kNonceBytes + kProofBytes;
constexpr size_t kRefusalFixedBytes = 8;

void PutText(std::span<std::byte> out, size_t at, size_t limit, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.substr(0, limit)));
  std::ranges::copy(bytes, out.begin() + static_cast<std::ptrdiff_t>(at));
}

std::string GetText(std::span<const std::byte> in, size_t at, size_t size) {
  return {reinterpret_cast<const char*>(in.data()) + at, size};
}

Status CheckStage(const char* what, uint8_t stage) {
  if (stage == kStageIntroduce || stage == kStageProve) return absl::OkStatus();
  return InvalidArgument("{}: expected stage 1 or 2, got {}", what, stage);
}

}  // namespace

std::vector<std::byte> EncodeHello(const LinkHello& hello) {
  const size_t run_bytes = std::min(hello.key.run.value().size(), kMaxRunIdBytes);
  std::vector<std::byte> out(kHelloFixedBytes + run_bytes);
  PutLe<uint8_t>(out, 0, hello.stage);
  PutLe<uint8_t>(out, 1, hello.sealed ? 1 : 0);
  PutLe<uint16_t>(out, 2, hello.version_min);
  PutLe<uint16_t>(out, 4, hello.version_max);
  PutLe<uint16_t>(out, 6, static_cast<uint16_t>(run_bytes));
  PutLe<uint64_t>(out, 8, hello.key.stamp.value());
  PutLe<uint32_t>(out, 16, hello.key.edge.value());
  PutLe<uint32_t>(out, 20, hello.attempt);
  PutLe<uint64_t>(out, 24, hello.received);
  PutText(out, 32, kNonceBytes, hello.nonce);
  PutText(out, 32 + kNonceBytes, kProofBytes, hello.proof);
  PutText(out, kHelloFixedBytes, run_bytes, hello.key.run.value());
  return out;
}

StatusOr<LinkHello> DecodeHello(std::span<const std::byte> payload) {
  if (payload.size() < kHelloFixedBytes) {
    return InvalidArgument("hello: expected {} bytes or more, got {}", kHelloFixedBytes,
                           payload.size());
  }
  const size_t run_bytes = GetLe<uint16_t>(payload, 6);
  if (run_bytes == 0 || run_bytes > kMaxRunIdBytes ||
      payload.size() != kHelloFixedBytes + run_bytes) {
    return InvalidArgument(
        "hello: a run id of {} bytes in a payload of {} (1 to {} after {} are allowed)", run_bytes,
        payload.size(), kMaxRunIdBytes, kHelloFixedBytes);
  }
  LinkHello hello;
  hello.stage = GetLe<uint8_t>(payload, 0);
  LH_RETURN_IF_ERROR(CheckStage("hello", hello.stage));
  hello.sealed = GetLe<uint8_t>(payload, 1) != 0;
  hello.version_min = GetLe<uint16_t>(payload, 2);
  hello.version_max = GetLe<uint16_t>(payload, 4);
  if (hello.version_min == 0 || hello.version_min > hello.version_max) {
    return InvalidArgument("hello: {} to {} is no range of versions", hello.version_min,
                           hello.version_max);
  }
  hello.key.stamp = Stamp(GetLe<uint64_t>(payload, 8));
  hello.key.edge = EdgeId(GetLe<uint32_t>(payload, 16));
  hello.attempt = GetLe<uint32_t>(payload, 20);
  hello.received = GetLe<uint64_t>(payload, 24);
  hello.nonce = GetText(payload, 32, kNonceBytes);
  hello.proof = GetText(payload, 32 + kNonceBytes, kProofBytes);
  hello.key.run = RunId(GetText(payload, kHelloFixedBytes, run_bytes));
  return hello;
}

std::vector<std::byte> EncodeWelcome(const LinkWelcome& welcome) {
  std::vector<std::byte> out(kWelcomeBytes);
  PutLe<uint8_t>(out, 0, welcome.stage);
  PutLe<uint16_t>(out, 2, welcome.version);
  PutLe<uint64_t>(out, 8, welcome.received);
  PutText(out, 16, kNonceBytes, welcome.nonce);
  PutText(out, 16 + kNonceBytes, kProofBytes, welcome.proof);
  return out;
}

StatusOr<LinkWelcome> DecodeWelcome(std::span<const std::byte> payload) {
  if (payload.size() != kWelcomeBytes) {
    return InvalidArgument("welcome: expected {} bytes, got {}", kWelcomeBytes, payload.size());
  }
  LinkWelcome welcome;
  welcome.stage = GetLe<uint8_t>(payload, 0);
  LH_RETURN_IF_ERROR(CheckStage("welcome", welcome.stage));
  welcome.version = GetLe<uint16_t>(payload, 2);
  welcome.received = GetLe<uint64_t>(payload, 8);
  welcome.nonce = GetText(payload, 16, kNonceBytes);
  welcome.proof = GetText(payload, 16 + kNonceBytes, kProofBytes);
  return welcome;
}

std::vector<std::byte> EncodeRefusal(const LinkRefusal& refusal) {
  const size_t text_bytes = std::min(refusal.reason.size(), kMaxRefusalBytes);
  std::vector<std::byte> out(kRefusalFixedBytes + text_bytes);
  PutLe<uint8_t>(out, 0, refusal.retry ? 1 : 0);
  PutLe<uint32_t>(out, 4, static_cast<uint32_t>(refusal.code));
  PutText(out, kRefusalFixedBytes, text_bytes, refusal.reason);
  return out;
}

StatusOr<LinkRefusal> DecodeRefusal(std::span<const std::byte> payload) {
  if (payload.size() < kRefusalFixedBytes ||
      payload.size() > kRefusalFixedBytes + kMaxRefusalBytes) {
    return InvalidArgument("refusal: expected {} to {} bytes, got {}", kRefusalFixedBytes,
                           kRefusalFixedBytes + kMaxRefusalBytes, payload.size());
  }
  const auto code = GetLe<uint32_t>(payload, 4);
  if (code == 0 || code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) {
    return InvalidArgument("refusal: {} is no error code", code);
  }
  LinkRefusal refusal;
  refusal.retry = GetLe<uint8_t>(payload, 0) != 0;
  refusal.code = static_cast<absl::StatusCode>(code);
  refusal.reason = GetText(payload, kRefusalFixedBytes, payload.size() - kRefusalFixedBytes);
  // A sentence for a log, from a side that has proved nothing yet.
  for (char& c : refusal.reason) {
    if (c < ' ' || c > '~') c = '?';
  }
  return refusal;
}

namespace {

std::string TranscriptOf(std::string_view purpose, Side side, const ProofInput& input) {
  std::array<std::byte, 48> fixed{};
  PutLe<uint8_t>(fixed, 0, static_cast<uint8_t>(side));
  PutLe<uint8_t>(fixed, 1, static_cast<uint8_t>(input.lane));
  PutLe<uint16_t>(fixed, 2, input.version_min);
  PutLe<uint16_t>(fixed, 4, input.version_max);
  PutLe<uint16_t>(fixed, 6, input.version);
  PutLe<uint64_t>(fixed, 8, input.link_id);
  PutLe<uint64_t>(fixed, 16, input.key.stamp.value());
  PutLe<uint32_t>(fixed, 24, input.key.edge.value());
  PutLe<uint32_t>(fixed, 28, input.attempt);
  PutLe<uint64_t>(fixed, 32, input.dialler_received);
  PutLe<uint64_t>(fixed, 40, input.listener_received);
  // All but the last part have fixed lengths, so no two inputs give the same bytes.
  std::string message(purpose);
  message.append(reinterpret_cast<const char*>(fixed.data()), fixed.size());
  message += input.dialler_nonce;
  message += input.listener_nonce;
  message += input.key.run.value();
  return message;
}

}  // namespace

std::string Prove(std::string_view secret, Side side, const ProofInput& input) {
  return HmacSha256(
      secret,
      TranscriptOf(input.sealed ? "longhaul link seal! 3" : "longhaul link proof 2", side, input));
}

// HKDF (RFC 5869): one block of output, with the secret as salt.
std::string SealKeyOf(std::string_view secret, std::string_view agreed, Side side,
                      const ProofInput& input) {
  const std::string extracted = HmacSha256(secret, agreed);
  return HmacSha256(extracted, TranscriptOf("longhaul link keys! 3", side, input) + '\x01');
}

StatusOr<uint16_t> ChooseVersion(uint16_t min_a, uint16_t max_a, uint16_t min_b, uint16_t max_b) {
  const uint16_t version = std::min(max_a, max_b);
  if (version < std::max(min_a, min_b)) {
    return absl::UnimplementedError(
        fmt::format("no link version in common: one side speaks {} to {}, the other {} to {}; run "
                    "the same release on both machines",
                    min_a, max_a, min_b, max_b));
  }
  return version;
}

std::string_view WithoutSecret(std::string_view address) {
  return address.substr(0, address.find('#'));
}

std::string Describe(const LinkKey& key) {
  return fmt::format("run {} assignment {:016x} edge {}", key.run.value(), key.stamp.value(),
                     key.edge.value());
}

}  // namespace longhaul::transport::internal
