// The id of a rendezvous: "lhg1-<name of its socket>-<secret>". The name is public, because every
// process on the machine can list abstract sockets. The digit is the version of the messages.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::collective::internal {

struct RendezvousId {
  std::string socket;
  std::string secret;  // kSecretBytes
};
RendezvousId NewRendezvousId();
std::string FormatId(const RendezvousId& id);
// The error does not repeat the text, which may hold a secret.
StatusOr<RendezvousId> ParseId(std::string_view text);

// Returns a socket name that no other socket uses.
std::string NewSocketName(std::string_view purpose);

}  // namespace longhaul::collective::internal
