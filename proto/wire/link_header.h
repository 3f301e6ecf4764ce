// The link header: 64 bytes before every frame of a data link (transport/p2p/link.h). The transport
// layer writes and reads the header. Little-endian.
//
//   offset size  field
//        0    4  magic "LHLK"
//        4    2  version (2 to 4)
//        6    1  kind
//        7    1  lane              0 bulk, 1 control
//        8    8  sequence          number of this frame in its lane and direction, from 1; a frame
//                                  that is sent again keeps its number; 0: not sequenced
//       16    8  acknowledgement   highest sequence that the sender of this frame has handled,
//                                  of the other direction of this lane
//       24    3  credits           frames beyond `acknowledgement` that the sender of this frame
//                                  is ready to receive
//       27    1  following         so many frames with as long a payload follow at once; before
//                                  version 4 the highest byte of `credits`
//       28    4  payload_bytes     after the header
//       32    8  checksum          XXH3-64 of the header with this field and the tag zero, then
//                                  the payload; zero in a sealed frame
//       40    8  link_id           chosen by the dialing side at Hello; 0 before
//       48   16  tag               authentication tag of a sealed (encrypted) frame
//                                  (transport/p2p/core/sealed_connection.h), else zero
//
// Version 4: `following`, with which a receiver waits for several frames at once.
// Version 3: links may be sealed. A hello says whether its link is.
// Version 2: the sender keeps data and goodbyes until they are acknowledged. A broken link
// continues over new connections (transport/p2p/core/hello.h). Version 1 had neither, and is
// refused.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace longhaul::wire {

inline constexpr size_t kLinkHeaderBytes = 64;
inline constexpr uint16_t kLinkVersionMin = 2;
inline constexpr uint16_t kLinkVersionMax = 4;
// The first version with sealed links.
inline constexpr uint16_t kLinkVersionOfSeals = 3;
// The first version with LinkHeader::following.
inline constexpr uint16_t kLinkVersionOfFollowing = 4;
inline constexpr size_t kLinkTagAt = 48, kLinkTagBytes = 16;  // the header's last field

enum class LinkKind : uint8_t {
  kHello = 1,      // dialer -> listener: asks for the link (transport/p2p/core/hello.h)
  kWelcome = 2,    // listener -> dialer: accepted
  kRefuse = 3,     // why the link is refused; on an open link, from either side: why it ends
  kData = 4,       // a caller's frame; sequenced
  kHeartbeat = 5,  // control lane
  kCredit = 6,     // acknowledgement and credits alone
  kGoodbye = 7,    // orderly end of the lane, after all data; sequenced
};

// The fields of the table above.
struct LinkHeader {
  uint16_t version = kLinkVersionMax;
  LinkKind kind = LinkKind::kData;
  uint8_t lane = 0;
  uint64_t sequence = 0;
  uint64_t acknowledgement = 0;
  uint32_t credits = 0;   // less than 2^24 from version 4 on
  uint8_t following = 0;  // 0 before version 4
  uint32_t payload_bytes = 0;
  uint64_t link_id = 0;
};

// Returns how many bytes a stream brings at once behind the frame of `header`, going by the header
// alone, which may be damaged or a lie. `header` must have kLinkHeaderBytes bytes. 0: not known.
size_t BytesFollowing(std::span<const std::byte> header);

// How the receiver detects changed frames.
enum class LinkGuard : uint8_t {
  kChecksum,
  // Authenticated encryption. A checksum would reveal something about the plaintext.
  kSeal,
};

// Writes the header for the payload `payload_head` followed by `payload_tail`. Computes
// payload_bytes and, with kChecksum, the checksum; ignores header.payload_bytes. Leaves the tag
// zero.
void EncodeLinkHeader(const LinkHeader& header, std::span<const std::byte> payload_head,
                      std::span<const std::byte> payload_tail,
                      std::span<std::byte, kLinkHeaderBytes> out,
                      LinkGuard guard = LinkGuard::kChecksum);

// Checks magic, version, kind, lane, payload_bytes == payload.size() and, with kChecksum, the
// checksum. kDataLoss: the checksum is wrong. kUnimplemented: another version. kInvalidArgument:
// any other fault.
StatusOr<LinkHeader> DecodeLinkHeader(std::span<const std::byte> header,
                                      std::span<const std::byte> payload,
                                      LinkGuard guard = LinkGuard::kChecksum);

}  // namespace longhaul::wire
