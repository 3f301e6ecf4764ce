#include "transport/collective/core/message.h"

#include <bit>
#include <cstring>

#include "base/printable.h"

namespace longhaul::collective::internal {
namespace {

static_assert(std::endian::native == std::endian::little, "messages are little-endian");

constexpr size_t kHeaderBytes = 8;

template <class T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
T Get(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

bool IsKind(uint8_t kind) {
  return (kind >= static_cast<uint8_t>(MessageKind::kJoin) &&
          kind <= static_cast<uint8_t>(MessageKind::kGoodbye)) ||
         (kind >= static_cast<uint8_t>(MessageKind::kRefused) &&
          kind <= static_cast<uint8_t>(MessageKind::kEnded));
}

}  // namespace

std::string Encode(MessageKind kind, std::string_view payload) {
  std::string out;
  out.reserve(kHeaderBytes + payload.size());
  Put(out, static_cast<uint32_t>(payload.size()));
  Put(out, uint32_t{static_cast<uint8_t>(kind)});
  out += payload;
  return out;
}

void MessageReader::Feed(std::string_view bytes) {
  // Messages that Next has returned go here, all at once, and not one by one.
  buffer_.erase(0, at_);
  at_ = 0;
  buffer_ += bytes;
}

StatusOr<std::optional<GroupMessage>> MessageReader::Next() {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  if (rest.size() < kHeaderBytes) return std::nullopt;
  const auto bytes = Get<uint32_t>(rest, 0);
  const auto kind = Get<uint32_t>(rest, 4);
  if (kind > 0xff || !IsKind(static_cast<uint8_t>(kind))) {
    return InvalidArgument("no kind of message has the number {}", kind);
  }
  // Before the payload has come: the reader buffers all that it expects.
  if (bytes > limit_) {
    return InvalidArgument("a message of {} bytes came, expected at most {}", bytes, limit_);
  }
  if (rest.size() - kHeaderBytes < bytes) return std::nullopt;
  at_ += kHeaderBytes + bytes;
  return GroupMessage{static_cast<MessageKind>(kind),
                      std::string(rest.substr(kHeaderBytes, bytes))};
}

std::string EncodeJoin(const JoinPayload& join) {
  std::string out = join.secret;
  Put(out, join.place.rank);
  Put(out, join.place.size);
  return out;
}

StatusOr<JoinPayload> DecodeJoin(std::string_view payload) {
  if (payload.size() != kJoinBytes) {
    return InvalidArgument("a join has {} bytes, got {}", kJoinBytes, payload.size());
  }
  return JoinPayload{
      std::string(payload.substr(0, kSecretBytes)),
      {Get<uint32_t>(payload, kSecretBytes), Get<uint32_t>(payload, kSecretBytes + 4)}};
}

std::string EncodeRefused(const Status& refusal) {
  std::string out;
  Put(out, static_cast<uint32_t>(refusal.code()));
  out += Message(refusal);
  return out;
}

Status DecodeRefused(std::string_view payload) {
  if (payload.size() < 4) return absl::InvalidArgumentError("a refusal without a code came");
  const auto code = Get<uint32_t>(payload, 0);
  const std::string text = Printable(payload.substr(4), kMaxEndedBytes);
  // Other codes are not taken from the network: a caller may act on them.
  if (code == static_cast<uint32_t>(absl::StatusCode::kInvalidArgument)) {
    return absl::InvalidArgumentError(text);
  }
  return absl::AbortedError(text);
}

std::string EncodeCame(const CamePayload& came) {
  std::string out;
  Put(out, came.round);
  Put(out, came.ranks);
  return out;
}

StatusOr<CamePayload> DecodeCame(std::string_view payload) {
  if (payload.size() != 16) {
    return InvalidArgument("who has come takes 16 bytes, got {}", payload.size());
  }
  return CamePayload{Get<uint64_t>(payload, 0), Get<uint64_t>(payload, 8)};
}

std::string EncodeTold(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    Put(out, static_cast<uint32_t>(word.size()));
    out += word;
  }
  return out;
}

StatusOr<std::vector<std::string>> DecodeTold(std::string_view payload, uint32_t size) {
  std::vector<std::string> words;
  while (payload.size() >= 4 && words.size() < size) {
    const auto bytes = Get<uint32_t>(payload, 0);
    payload.remove_prefix(4);
    if (bytes > payload.size()) break;
    words.emplace_back(payload.substr(0, bytes));
    payload.remove_prefix(bytes);
  }
  if (words.size() != size || !payload.empty()) {
    return InvalidArgument("the words of {} ranks were expected, got {} and {} bytes more", size,
                           words.size(), payload.size());
  }
  return words;
}

}  // namespace longhaul::collective::internal
