// Any bytes as what strangers and members may send a rendezvous, and as what a rendezvous may send
// a member. The input is pieces of a stream: u8 connection, u8 bytes, the bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "base/fuzz/target.h"
#include "transport/collective/core/message.h"
#include "transport/collective/core/roster.h"

namespace {

using namespace longhaul::collective::internal;  // NOLINT(google-build-using-namespace)

// A whole payload of each kind decodes, or is refused.
bool Decodes(std::string_view payload) {
  const auto join = DecodeJoin(payload);
  if (join.ok() && EncodeJoin(*join) != payload) std::abort();
  const auto came = DecodeCame(payload);
  if (came.ok() && EncodeCame(*came) != payload) std::abort();
  const auto told = DecodeTold(payload, 3);
  if (told.ok() && EncodeTold(*told) != payload) std::abort();
  if (DecodeRefused(payload).ok()) std::abort();
  return join.ok() || came.ok() || told.ok();
}

struct Peer {
  MessageReader reader{kJoinBytes};
  bool closed = false;
};

}  // namespace

LH_FUZZ_TARGET(collective_message) {
  Roster roster(std::string(kSecretBytes, 's'));
  std::map<uint64_t, Peer> peers;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  bool taken = Decodes(rest);
  while (rest.size() >= 2) {
    const uint64_t number = static_cast<uint8_t>(rest[0]) % 4;
    const std::string_view piece = rest.substr(2, static_cast<uint8_t>(rest[1]));
    rest.remove_prefix(2 + piece.size());
    Peer& peer = peers[number];
    if (peer.closed) continue;
    peer.reader.Feed(piece);
    while (!peer.closed) {
      peer.reader.SetPayloadLimit(roster.PayloadLimit(number));
      const auto message = peer.reader.Next();
      if (!message.ok()) {
        roster.Drop(number, "rubbish");
        peer.closed = true;
      } else if (*message) {
        taken = true;
        roster.OnMessage(number, static_cast<int64_t>(number), **message);
      } else {
        break;
      }
    }
    for (const Roster::Output& output : roster.TakeOutput()) {
      MessageReader reader(MaxToldBytes(longhaul::collective::kMaxRanks));
      reader.Feed(output.bytes);
      if (!output.bytes.empty() && !reader.Next().ok()) std::abort();
      peers[output.to].closed = peers[output.to].closed || output.then_close;
    }
  }
  for (const auto& [number, peer] : peers) roster.OnClosed(number);
  const bool had_members = roster.Over();
  roster.End("done");
  return taken || had_members;
}
