// The id of a rendezvous, where the ranks of a group meet (member.h): "lhg1-<name>-<secret>", name
// and secret in hexadecimal. The 1 is the version of the messages. <name> is the name of the
// rendezvous' Unix socket (unix_socket.h). The name is not secret, because every process on the
// machine can list abstract sockets.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::collective::internal {

struct RendezvousId {
  std::string socket;
  std::string secret;  // kSecretBytes random bytes
};
RendezvousId NewRendezvousId();
std::string FormatId(const RendezvousId& id);
// kInvalidArgument: not an id. The message does not repeat the text, which may hold a secret.
StatusOr<RendezvousId> ParseId(std::string_view text);

// Returns a random socket name that no other socket uses; it contains `purpose`.
std::string NewSocketName(std::string_view purpose);

}  // namespace longhaul::collective::internal
