// Tickets: which two ends may meet at a relay. A relay has a secret, which the coordinator knows.
// The coordinator makes a ticket for each link, with a name that nobody can guess, and gives it to
// the link's two ends. The relay stores no tickets: it derives a ticket's key from its secret and
// the ticket's name.
//
// The greeting of a connection. An eavesdropper cannot use any of it:
//
//   relay  ->  magic (8)  nonce (32)
//   end    ->  side (1)  until (8)  name (32)  proof (32): HMAC-SHA-256 by the ticket's key
//              over the fields before and the nonce
//   relay  ->  one byte, RelayWord; behind kJoined what the other end sends
//
// A way is a relay's address with a ticket, as text: "203.0.113.7:7071#" and hexadecimal digits.
// ":7071#..." means the coordinator's host, as each worker knows it. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::relay {

inline constexpr size_t kSecretBytes = 32, kNameBytes = 32, kNonceBytes = 32, kProofBytes = 32;
inline constexpr std::string_view kMagic = "LHRELAY1";
inline constexpr size_t kGreetingBytes = 8 + kNonceBytes;
inline constexpr size_t kAnswerBytes = 1 + 8 + kNameBytes + kProofBytes;

enum class Side : uint8_t { kDialler = 1, kWaiter = 2 };

enum class RelayWord : uint8_t {
  kJoined = 'J',
  kRefused = 'R',  // the ticket is not from this relay, or has expired
  kNobody = 'N',   // to a dialler: no connection waits for it
  kFull = 'F',
};

struct Ticket {
  std::string name;      // kNameBytes
  uint64_t until_s = 0;  // Unix time; the two may meet until then
  std::string key;       // proves that its owner was given the ticket
};

// `name` has kNameBytes.
Ticket MakeTicket(std::string_view relay_secret, std::string_view name, uint64_t until_s);

struct Way {
  std::string address;  // "203.0.113.7:7071", ":7071"
  Ticket ticket;
};
std::string ToString(const Way& way);
// kInvalidArgument, without the ticket in the message.
StatusOr<Way> ParseWay(std::string_view text);

std::string Greeting(std::string_view nonce);
// Returns the nonce, a view into `greeting`. kInvalidArgument: not a relay's greeting.
StatusOr<std::string_view> ParseGreeting(std::string_view greeting);

std::string Answer(const Ticket& ticket, Side side, std::string_view nonce);
struct Claim {
  Side side = Side::kDialler;
  std::string_view name;  // a view into the answer
};
// Checks an answer for the relay. kPermissionDenied: the proof is wrong, or the ticket has expired.
StatusOr<Claim> CheckAnswer(std::string_view relay_secret, std::string_view answer,
                            std::string_view nonce, uint64_t now_s);

// Reads the secret from a file with mode 0600, and makes the file if it does not exist, so that
// tickets outlive the process.
StatusOr<std::string> LoadOrMakeSecret(const std::string& path);

}  // namespace longhaul::relay
