// Tickets say which two ends may meet at a relay. A relay has a secret, which the coordinator
// knows. The coordinator makes a ticket for each link, with a name that nobody can guess, and gives
// it to the link's two ends. The relay stores no tickets: it computes a ticket's key from its
// secret and the ticket's name and time.
//
// These messages open a connection; the numbers are bytes. An eavesdropper cannot use any of them,
// because the nonce is new for each connection:
//
//   relay  ->  greeting: magic (8)  nonce (32)
//   end    ->  answer: side (1)  until (8)  name (32)  proof (32): HMAC-SHA-256, by the ticket's
//              key, over the answer's other fields and the nonce
//   relay  ->  one byte, RelayWord; after kJoined follow the bytes that the other end sends
//
// A ticket's name begins with its scope, which the tickets of one assignment of a run share. The
// coordinator tells its relays which scopes count now, so a ticket ends with its assignment: when
// the run ends, or goes on without a worker that was revoked.
//
// A way is a relay's address with a ticket, as text: "203.0.113.7:7071#" and hexadecimal digits. A
// way without a host, ":7071#...", means a relay at the coordinator's host, which each worker
// reaches by its own name for it. Pure functions, except LoadOrMakeSecret.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::relay {

inline constexpr size_t kSecretBytes = 32, kNameBytes = 32, kNonceBytes = 32, kProofBytes = 32;
inline constexpr size_t kScopeBytes = 16;  // of kNameBytes
inline constexpr std::string_view kMagic = "LHRELAY1";
inline constexpr size_t kGreetingBytes = 8 + kNonceBytes;
inline constexpr size_t kAnswerBytes = 1 + 8 + kNameBytes + kProofBytes;

enum class Side : uint8_t { kDialler = 1, kWaiter = 2 };

enum class RelayWord : uint8_t {
  kJoined = 'J',
  kRefused = 'R',  // the ticket is not from this relay, or has expired
  kNobody = 'N',   // to a dialler: no connection waits for it
  kFull = 'F',     // the relay has as many connections as it may
};

struct Ticket {
  std::string name;      // kNameBytes; the first kScopeBytes are the scope
  uint64_t until_s = 0;  // Unix time until which the two ends may meet, in seconds
  std::string key;       // secret, known only to the relay, the coordinator and the two ends
};

// Returns the scope of the tickets of one assignment, from the link secret of its run. `tag`: bytes
// that are different for each assignment.
std::string ScopeOf(std::string_view link_secret, std::string_view tag);
// Returns the name of the ticket for one link of an assignment. `link`: text that is different for
// each link of it.
std::string NameOf(std::string_view link_secret, std::string_view tag, std::string_view link);

// Makes a ticket. `name` must have kNameBytes, and `relay_secret` kSecretBytes.
Ticket MakeTicket(std::string_view relay_secret, std::string_view name, uint64_t until_s);

struct Way {
  std::string address;  // "203.0.113.7:7071", ":7071"
  Ticket ticket;
};
std::string ToString(const Way& way);
// kInvalidArgument: not a way. The message does not contain the ticket.
StatusOr<Way> ParseWay(std::string_view text);

// Makes the relay's greeting. `nonce`: kNonceBytes random bytes, new for each connection.
std::string Greeting(std::string_view nonce);
// Returns the nonce, a view into `greeting`. kInvalidArgument: not a relay's greeting.
StatusOr<std::string_view> ParseGreeting(std::string_view greeting);

// Makes an end's answer to the greeting with this nonce.
std::string Answer(const Ticket& ticket, Side side, std::string_view nonce);
struct Claim {
  Side side = Side::kDialler;
  std::string_view name;  // a view into the answer
};
// Checks an end's answer, for the relay. `nonce`: as in the greeting. `now_s`: Unix time in
// seconds. kPermissionDenied: the answer is not valid, the proof is wrong, or the ticket has
// expired.
StatusOr<Claim> CheckAnswer(std::string_view relay_secret, std::string_view answer,
                            std::string_view nonce, uint64_t now_s);

// Reads the relay's secret from a file, so that tickets stay valid when the process restarts. If
// there is no file, makes one with a new secret and mode 0600. kFailedPrecondition: the file does
// not hold a secret. Other errors: the file cannot be read or written.
StatusOr<std::string> LoadOrMakeSecret(const std::string& path);

}  // namespace longhaul::relay
