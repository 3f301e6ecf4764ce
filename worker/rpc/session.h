// The worker's stream to its coordinator: dials, says hello, sends what is reported, hands over
// what is commanded, and dials again with back-off for ever. Of several coordinators, the next one
// is dialled at once; back-off comes after each of them was tried.
//
// A standby that takes over has a newer term than the coordinator before it. No command is obeyed
// that has an older term than one that was obeyed before: the old coordinator may be back, and not
// know yet that another one is in its place.
//
// Threads: two of its own. `on_command` runs on one of them and must not block. Send is thread-safe
// and never blocks; what cannot be sent now is kept until the coordinator is back, and what was
// written before is said again in each new session (report_outbox.h).
#ifndef LONGHAUL_WORKER_RPC_SESSION_H_
#define LONGHAUL_WORKER_RPC_SESSION_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "longhaul/v1/worker.grpc.pb.h"
#include "proto/member/access.h"
#include "worker/rpc/report_outbox.h"

namespace longhaul::worker {

// Host memory of this process, bytes; 0: not known.
uint64_t MemoryUsed();

struct SessionOptions {
  std::shared_ptr<Access> access;
  std::function<v1::Hello()> hello;  // asked at each connection
  // Asked about once a heartbeat, on a thread of the session's: whether the hello is true no more
  // and its connection will hear no answer, because this machine has another address. Null: never.
  std::function<bool()> moved;
  std::function<void(v1::WorkerCommand)> on_command;
  // Says more in a heartbeat; on a thread of the session's. Null: nothing.
  std::function<void(v1::Heartbeat*)> heartbeat = nullptr;
};

class Session {
 public:
  explicit Session(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void Send(v1::WorkerMessage message);
  // Waits until all that was sent so far is on its way; at most `limit`, and not while there is no
  // session.
  void AwaitSent(absl::Duration limit);
  // Set once, when the coordinator refused this worker for good (version, token).
  Status fatal() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::WorkerCommand>;
  void Loop();
  // One connection, until it ends, and why.
  struct Ending {
    bool welcomed = false;  // before it ended
    bool serves = false;    // the same coordinator is to be dialled again, after a pause
  };
  Ending Connect();
  // What to log about the end of a connection to the coordinator at `address`. Empty: nothing new.
  // With the lock.
  std::string NewsLocked(const std::string& address, const Status& status, bool reached);
  void WriteLoop(Stream* stream);
  // False: the connection is to end.
  bool HandleCommand(v1::WorkerCommand command);
  // Why a command of this term is not to be obeyed; empty: it is.
  std::string WhyNotObeyed(uint64_t term) const;
  // False when closing.
  bool Sleep(absl::Duration duration);

  const SessionOptions options_;
  StubOf<v1::WorkerService> stub_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ReportOutbox outbox_;
  grpc::ClientContext* context_ = nullptr;  // of the connection that is open
  bool stream_ended_ = false;
  bool moved_ = false;  // since the connection that is open was made
  bool welcomed_ = false;
  bool rejected_ = false;  // by the connection that is open
  bool closing_ = false;
  absl::Duration heartbeat_ = absl::Seconds(1);
  Status fatal_;
  std::map<std::string, std::string> failures_;  // by address: what was logged since a welcome
  // Of the thread that reads commands.
  uint64_t term_ = 0;         // the newest one whose commands were obeyed
  std::string obeyed_;        // the coordinator whose command that was last; empty: none
  std::string out_of_place_;  // why commands of the connection that is open are not obeyed
  std::thread thread_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_SESSION_H_
