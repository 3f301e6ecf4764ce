// Carries links between workers that cannot reach each other. Both ends dial the relay and show a
// ticket (ticket.h). The relay joins two connections whose tickets have the same name, one of each
// side; then bytes pass both ways (pipe.h). The two ends encrypt the bytes, so the relay cannot
// read them. A connection that shows no ticket of this relay is refused.
//
//   auto relay = Relay::Start({.listen = "0.0.0.0:7071", .secret = secret});
//
// Threads: the relay has its own loop thread; any thread may call the methods.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/status.h"

namespace longhaul::relay {

struct RelayOptions {
  std::string listen;  // "0.0.0.0:7071"; port 0: any free port
  std::string secret;  // kSecretBytes bytes, from LoadOrMakeSecret (ticket.h)
  // One end of a link is the dialler, the other the waiter (Side, ticket.h); both connect to the
  // relay. How long the dialler's connection waits for one of the waiter. Then the relay answers
  // RelayWord::kNobody and closes it. The waiter's connection waits without a limit.
  absl::Duration patience = absl::Seconds(2);
  // Beyond this limit and most_pipes, the relay answers RelayWord::kFull and closes the connection.
  size_t most_waiting = 4096;  // connections with a ticket, not yet joined
  // For each name, that is, for each link: the most connections of one side that wait, and the most
  // joined pairs. For a further one the relay closes the oldest. A link has two pairs. It has four
  // for a while if it reconnects before the relay has noticed that the old two broke.
  size_t most_of_a_name = 4;
  size_t most_pipes = 1024;  // joined pairs; each has two buffers of kPipeBufferBytes
  // True: only tickets of the scopes of Serve (ticket.h) count, and none before the first call of
  // Serve. False: all tickets of this relay count until then.
  bool scoped = false;
};

// `refused` counts connections whose ticket was wrong, had expired or
// was of a scope that is not served. `bytes` counts the bytes that
// were passed on, in both directions.
struct RelayStats {
  size_t waiting = 0, pipes = 0;
  uint64_t joined = 0, refused = 0, bytes = 0;  // since the start
};

class Relay {
 public:
  // kAlreadyExists: the port is in use. kInvalidArgument: the address or the secret is wrong.
  // kFailedPrecondition: not an address of this host.
  static StatusOr<std::unique_ptr<Relay>> Start(const RelayOptions& options);
  // Closes all connections that the relay carries. Returns when they are closed.
  ~Relay();

  const std::string& address() const { return address_; }  // with the real port
  RelayStats stats() const;
  // Replaces the scopes whose tickets count. Connections with other tickets are closed, joined ones
  // too. New ones with such tickets are told RelayWord::kNobody, so their ends try again: the
  // coordinator may name their scope in a moment. Returns before the connections are closed.
  void Serve(std::vector<std::string> scopes);

 private:
  class Desk;  // runs on the loop
  Relay(std::shared_ptr<EventLoopThread> thread, std::shared_ptr<Desk> desk, std::string address);

  const std::shared_ptr<EventLoopThread> thread_;
  const std::shared_ptr<Desk> desk_;
  const std::string address_;
};

}  // namespace longhaul::relay
