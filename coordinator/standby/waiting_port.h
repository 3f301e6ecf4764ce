// The port of a coordinator that does not lead. It answers calls with kUnavailable, so that callers
// try another coordinator, and reports which workers request a session. GetTerm gets
// kFailedPrecondition, because the coordinator has no term (ask_term.h). The witness may call.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "coordinator/standby/seat_lines.h"
#include "coordinator/standby/witness_lines.h"
#include "proto/rpc/guarded_port.h"

namespace longhaul::coordinator {

class WaitingPort {
 public:
  // `address`: host:port to listen on, as a coordinator with `security` would. `answer`: the text
  // of the errors. `on_worker` gets the id of each worker that requests a session, and `on_vote`
  // the votes that the other coordinator asks for. They may run on several threads at once. Neither
  // they nor the handlers of `witness` run after the destructor has returned. kInvalidArgument: not
  // an address. kAlreadyExists: the port is in use. kFailedPrecondition: not an address of this
  // machine.
  static StatusOr<std::unique_ptr<WaitingPort>> Open(
      const std::string& address, const PortSecurity& security, std::string answer,
      std::function<void(const std::string& worker_id)> on_worker, WitnessLines::Handler witness,
      std::function<v1::VoteReply(const v1::VoteRequest& request)> on_vote);
  ~WaitingPort();
  // The address that is really bound: "127.0.0.1:43521".
  const std::string& address() const;
  WitnessLines& witness();

 private:
  struct Impl;
  explicit WaitingPort(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::coordinator
