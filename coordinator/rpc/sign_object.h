// Signs addresses of objects (base/remote/store.h) for workers, with the coordinator's credentials,
// which never leave it. A hub has to be asked for such an address, which takes time, so threads of
// this object do the work.
//
// Thread-safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "base/remote/settings.h"
#include "base/remote/store.h"
#include "base/status.h"
#include "base/work_threads.h"
#include "coordinator/rpc/named_objects.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/rpc/signing_limits.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

class ObjectSigner {
 public:
  // All pointers must outlive this object.
  ObjectSigner(const Shell* shell, BlobLists* lists, const remote::Settings& settings,
               const SigningLimits& limits);

  // Makes the reactor of one call; it deletes itself. `worker`: who calls; nullopt without TLS.
  // Errors of the call: those of Check and of Store::SignRead and SignWrite; kUnavailable: too many
  // calls, or the coordinator is shutting down.
  grpc::ServerUnaryReactor* Sign(const std::optional<WorkerId>& worker,
                                 const v1::SignObjectRequest& request, v1::SignObjectReply* reply);
  // Answers waiting and later calls with kUnavailable, and waits until `deadline` for those that
  // are worked on. False: some were still worked on.
  bool Stop(Deadline deadline);

 private:
  Status Answer(const std::optional<WorkerId>& worker, const v1::SignObjectRequest& request,
                v1::SignObjectReply* reply) const;
  bool HasCredentialsFor(remote::Kind kind) const;
  // Counts a call of this caller. False: there are too many.
  bool Begin(const std::string& caller);
  void End(const std::string& caller);

  const Shell* const shell_;
  const NamedObjects named_;
  const remote::Settings settings_;
  const SigningLimits limits_;
  const remote::Store store_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  size_t calls_ = 0;                        // of all callers
  std::map<std::string, size_t> calls_of_;  // by caller
  WorkThreads threads_;                     // last member: its threads use the others
};

}  // namespace longhaul::coordinator
