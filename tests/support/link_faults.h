// Makes the network of a transport fail on demand. Around wraps the transport's backend, which
// makes connections for its links (transport/p2p).
//
// Threads: tests may call Faults on any thread. The transport's event loop carries the calls out
// later, in order. A simulated loop has no thread: call Faults inside the loop, and each call takes
// effect at once.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/p2p/core/connection.h"

namespace longhaul::transport {

class FaultState;

// The faults of one transport's network. Call the other methods only after the backend that Around
// returned has started. The object may be destroyed before that backend.
class Faults {
 public:
  Faults();

  // Breaks every connection. Messages under way are lost, and both ends learn that the connection
  // has closed.
  void Reset() const;
  // As Reset, for the oldest open connection only.
  void ResetFirst() const;
  // Holds back all messages in both directions, on present and new connections. Neither end gets an
  // error. Restore delivers the messages, as TCP does by sending them again.
  void Cut() const;
  // As Cut, but for ever and for present connections only. New connections work.
  void CutForGood() const;
  // As CutForGood, for the oldest open connection only.
  void CutFirstForGood() const;
  // Changes where this transport finds a peer. From now on Connect(to) reaches the peer that
  // listens at `from`, and Connect(from) fails with kUnavailable. `to`: any text.
  void Move(const std::string& from, const std::string& to) const;
  // Ends Cut, but not the faults of CutForGood, CutFirstForGood and Move.
  void Restore() const;
  // Delays each incoming message by what `delay` returns. The loop calls `delay` once for each
  // message. Null: no delay. Messages of a connection stay in order. For simulations.
  void SetDelay(std::function<absl::Duration()> delay) const;

  // Returns a backend that passes all calls to `backend`, with the faults of this object. Call it
  // once, before any other method.
  std::unique_ptr<internal::Backend> Around(std::unique_ptr<internal::Backend> backend) const;

 private:
  const std::shared_ptr<FaultState> state_;
};

}  // namespace longhaul::transport
