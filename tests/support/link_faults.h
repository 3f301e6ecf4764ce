// A backend whose network can be made to fail: around any backend, between it and the links.
//
// Threads: Faults from any thread (what it asks for happens on the transport's loop, in order); in
// a simulation, whose loop has no thread, from the loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/p2p/core/connection.h"

namespace longhaul::transport {

class FaultState;

// One transport's network.
class Faults {
 public:
  Faults();

  // Each connection breaks: what is under way is lost, both ends hear of it.
  void Reset() const;
  // Only the connection that was made first.
  void ResetFirst() const;
  // Nothing comes in or goes out, nor connects, and nobody hears why; what is sent meanwhile
  // arrives after Restore, as by TCP's repetition.
  void Cut() const;
  // As Cut, but for connections that there are: new ones work.
  void CutForGood() const;
  // Only the connection that was made first; the others live.
  void CutFirstForGood() const;
  // What listened at `from` is reached at `to` (any name) from now on, and not at `from`.
  void Move(const std::string& from, const std::string& to) const;
  void Restore() const;
  // How long each message that comes in takes; for simulations.
  void SetDelay(std::function<absl::Duration()> delay) const;

  // Takes the place of `backend`. Once.
  std::unique_ptr<internal::Backend> Around(std::unique_ptr<internal::Backend> backend) const;

 private:
  const std::shared_ptr<FaultState> state_;
};

}  // namespace longhaul::transport
