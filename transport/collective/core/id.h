// The id of a rendezvous: "lhg1-<name of its socket>-<secret>". The name is no secret: everybody on
// the machine can list the abstract sockets. The digit is the version of the messages.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_CORE_ID_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_CORE_ID_H_

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
// kInvalidArgument without the text: it may hold a secret.
StatusOr<RendezvousId> ParseId(std::string_view text);

// A name for a socket that nobody has.
std::string NewSocketName(std::string_view purpose);

}  // namespace longhaul::collective::internal

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_CORE_ID_H_
