// The messages of the handshake that opens a link, or resumes it after a break. On each lane's
// connection:
//
//   dialler                                   listener
//   Hello   stage 1: key, versions, nonce ->
//                                          <- Welcome stage 1: version, nonce, listener's proof
//   Hello   stage 2: ..., dialler's proof ->
//                                          <- Welcome stage 2: the lane is open
//                                  or, at any point, <- Refuse
//
// A new link is attempt 0 with a new id. A link whose connections broke is resumed by attempt 1, 2,
// ... with its id: each side says how many frames of the lane it has received, and the other side
// sends the later ones again.
//
// A proof is HMAC-SHA-256 with the run's secret over the side's name, the lane, the link's id, the
// attempt, what each side has received, the key, the versions and both nonces. So neither side
// shows the secret, and an eavesdropper cannot replay a message to open or take over a link. Pure
// functions.
//
// Both sides know beforehand whether a link is sealed (sealed_connection.h). The hello contains
// this as well, so that a mismatch has its own error message. The proofs cover it.
//
// The nonces are fresh X25519 public keys. On a sealed link both sides compute a shared value from
// them, which an eavesdropper cannot compute from the public keys alone. The keys that seal the
// frames are derived from this value, the secret and everything that the proofs cover. So an
// attacker who learns the secret later cannot read earlier frames.
//
//   hello                               welcome
//   offset size  field                  offset size  field
//        0    1  stage                       0    1  stage
//        1    1  sealed                      2    2  version
//        2    2  version_min
//        4    2  version_max                 8    8  received
//        6    2  run_bytes                  16   32  nonce
//        8    8  stamp                      48   32  proof
//       16    4  edge
//       20    4  attempt                refusal
//       24    8  received               offset size  field
//       32   32  nonce                       0    1  retry
//       64   32  proof                       4    4  code
//       96    n  run                         8    n  reason
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kMaxRunIdBytes = 256;
inline constexpr size_t kMaxRefusalBytes = 1024;
inline constexpr uint8_t kStageIntroduce = 1;
inline constexpr uint8_t kStageProve = 2;

struct LinkHello {
  uint8_t stage = kStageIntroduce;
  bool sealed = false;
  uint16_t version_min = 0, version_max = 0;  // versions that the dialler speaks
  LinkKey key;
  uint32_t attempt = 0;   // 0: a new link
  uint64_t received = 0;  // highest sequence of this lane that the dialler received
  std::string nonce;      // kNonceBytes
  std::string proof;      // kProofBytes; zero in stage 1
};

struct LinkWelcome {
  uint8_t stage = kStageIntroduce;
  uint16_t version = 0;  // the version that both will speak
  // Highest sequence of this lane that the listener received; zero in stage 2.
  uint64_t received = 0;
  std::string nonce;  // kNonceBytes; zero in stage 2
  std::string proof;  // kProofBytes; zero in stage 2
};

struct LinkRefusal {
  bool retry = false;  // another try may succeed: the link is not expected yet
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  std::string reason;
};

std::vector<std::byte> EncodeHello(const LinkHello& hello);
std::vector<std::byte> EncodeWelcome(const LinkWelcome& welcome);
std::vector<std::byte> EncodeRefusal(const LinkRefusal& refusal);
// Decoders return kInvalidArgument for invalid bytes. EncodeRefusal cuts the reason after
// kMaxRefusalBytes. DecodeRefusal replaces unprintable characters of the reason by '?'.
StatusOr<LinkHello> DecodeHello(std::span<const std::byte> payload);
StatusOr<LinkWelcome> DecodeWelcome(std::span<const std::byte> payload);
StatusOr<LinkRefusal> DecodeRefusal(std::span<const std::byte> payload);

enum class Side : uint8_t { kDialler = 1, kListener = 2 };

// The values that both sides know once the nonces are exchanged.
struct ProofInput {
  Lane lane = Lane::kBulk;
  uint64_t link_id = 0;
  uint16_t version_min = 0, version_max = 0, version = 0;
  LinkKey key;
  uint32_t attempt = 0;
  uint64_t dialler_received = 0, listener_received = 0;
  std::string dialler_nonce, listener_nonce;
  bool sealed = false;
};
std::string Prove(std::string_view secret, Side side, const ProofInput& input);
// Returns the key, kSealKeyBytes, for the messages that `side` sends on a lane of a sealed link.
// `agreed`: the result of EphemeralKey::Agree (base/seal.h).
std::string SealKeyOf(std::string_view secret, std::string_view agreed, Side side,
                      const ProofInput& input);

// Returns the highest version that both sides speak. kUnimplemented: there is none; the message
// names both ranges.
StatusOr<uint16_t> ChooseVersion(uint16_t min_a, uint16_t max_a, uint16_t min_b, uint16_t max_b);

// Returns the address without '#' and the secret after it (a relay's ticket), for people. The
// result is a view into `address`.
std::string_view WithoutSecret(std::string_view address);

// "run demo-ab12cd assignment 9f3c12aa00b1e4d7 edge 0", for people.
std::string Describe(const LinkKey& key);

}  // namespace longhaul::transport::internal
