// The witness's streams to a coordinator (service WitnessService). The witness dials; the
// coordinator asks. Of several streams the newest counts, and the others are ended.
//
// The calls run on threads of their own, so that they go on while gRPC's other threads wait for the
// store. A waiting store may be waiting for the witness.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "longhaul/v1/standby.grpc.pb.h"
#include "proto/witness/rules.h"

namespace longhaul::coordinator {

class WitnessLines final : public v1::WitnessService::Service {
 public:
  // Returns the name of the member that calls, or why it is refused. Must not wait for the store.
  using Admit = std::function<StatusOr<std::string>(grpc::ServerContext& context)>;
  // Called on a thread of the service, one call at a time. Do not call Ask with a lock held that a
  // handler takes, unless the handlers never hold it while they wait.
  struct Handler {
    // A stream begins. Not OK: it is ended with this status.
    std::function<Status(const std::string& name, const witness::Record& record)> on_hello;
    std::function<void(const v1::WitnessSays::Answer& answer)> on_answer;
  };

  WitnessLines(Admit admit, Handler handler);
  // Call it before the server is built.
  void Register(grpc::ServerBuilder* builder);

  // Sends a request to the witness. Returns at once. False: no stream is open, or the witness has
  // not answered many requests before.
  bool Ask(const witness::Request& request);
  // Whether a stream is open whose hello was accepted.
  bool open() const;
  // Ends all streams. Later ones are refused.
  void Close();

  using Stream = grpc::ServerReaderWriter<v1::WitnessAsked, v1::WitnessSays>;
  grpc::Status Witness(grpc::ServerContext* context, Stream* stream) override;

 private:
  const Admit admit_;
  const Handler handler_;
  std::mutex handling_;  // held while a handler runs

  mutable std::mutex mutex_;  // guards the members below
  Stream* newest_ = nullptr;
  grpc::ServerContext* context_ = nullptr;  // of newest_
  bool accepted_ = false;                   // its hello was
  size_t unanswered_ = 0;
  uint64_t last_request_ = 0;
  bool closed_ = false;
};

}  // namespace longhaul::coordinator
