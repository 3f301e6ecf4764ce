// The messages between the members of a group and their rendezvous. A connection is a Unix stream
// socket; a message is
//
//   u32 bytes of the payload | u8 kind | 3 bytes zero | payload
//
// Numbers are little-endian. The first message of a member must be a join. Both sides limit the
// length of the payloads that they accept.
//
//   kind      from        payload
//   join      member      32 bytes secret, u32 rank, u32 size
//   tell      member      the rank's text (Member::Tell), up to kMaxTellBytes
//   end       member      why the group is to end, up to kMaxReasonBytes
//   goodbye   member
//   refused   rendezvous  the answer to a wrong join: u32 StatusCode, text
//   came      rendezvous  u64 round (0: join, n: n-th tell), u64 ranks that have sent it (bit r)
//   joined    rendezvous  all ranks have joined
//   told      rendezvous  all ranks have told: for each rank u32 bytes, its text
//   ended     rendezvous  why the group has ended, up to kMaxEndedBytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transport/collective/member.h"

namespace longhaul::collective::internal {

inline constexpr size_t kSecretBytes = 32;
inline constexpr size_t kMaxReasonBytes = 2048;
// Room for a reason and the rank that ended the group.
inline constexpr size_t kMaxEndedBytes = kMaxReasonBytes + 128;
inline constexpr size_t kJoinBytes = kSecretBytes + 8;

enum class MessageKind : uint8_t {
  kJoin = 1,
  kTell = 2,
  kEnd = 3,
  kGoodbye = 4,
  kRefused = 16,
  kCame = 17,
  kJoined = 18,
  kTold = 19,
  kEnded = 20,
};

struct GroupMessage {
  MessageKind kind{};
  std::string payload;
};
std::string Encode(MessageKind kind, std::string_view payload);

// Cuts a stream of bytes into messages. Call Next until it returns nullopt after every Feed; then
// at most one incomplete message is buffered.
class MessageReader {
 public:
  explicit MessageReader(size_t payload_limit) : limit_(payload_limit) {}
  void SetPayloadLimit(size_t limit) { limit_ = limit; }
  void Feed(std::string_view bytes);
  // Returns the next message, or nullopt if it has not arrived in full. kInvalidArgument: an
  // unknown kind, or a payload above the limit.
  StatusOr<std::optional<GroupMessage>> Next();

 private:
  size_t limit_;
  std::string buffer_;
  size_t at_ = 0;  // index of the first byte not yet returned
};

// The payloads that have fields. Decoding returns kInvalidArgument for invalid bytes.
struct JoinPayload {
  std::string secret;
  Place place;
};
std::string EncodeJoin(const JoinPayload& join);
StatusOr<JoinPayload> DecodeJoin(std::string_view payload);

std::string EncodeRefused(const Status& refusal);
// Returns the refusal as an error; never OK.
Status DecodeRefused(std::string_view payload);

struct CamePayload {
  uint64_t round = 0;
  uint64_t ranks = 0;
};
std::string EncodeCame(const CamePayload& came);
StatusOr<CamePayload> DecodeCame(std::string_view payload);

std::string EncodeTold(const std::vector<std::string>& words);
StatusOr<std::vector<std::string>> DecodeTold(std::string_view payload, uint32_t size);
constexpr size_t MaxToldBytes(uint32_t size) {
  return size * (4 + kMaxTellBytes);
}

}  // namespace longhaul::collective::internal
