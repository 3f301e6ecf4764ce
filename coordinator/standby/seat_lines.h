// The calls of one of two coordinators about who leads (service SeatService): the other one asks
// for its vote, and an admin says which of them leads.
//
// The calls run on threads of their own, so that they go on while gRPC's other threads wait for the
// store.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <string>
#include <utility>

#include "base/status.h"
#include "coordinator/lead/seat.h"
#include "longhaul/v1/standby.grpc.pb.h"

namespace longhaul::coordinator {

// A vote that a seat asks for, and the answer. `why`: if it is not granted.
v1::VoteRequest RequestOf(const seat_message::Vote& vote);
seat_message::Vote VoteOf(const v1::VoteRequest& request);
v1::VoteReply ReplyOf(const seat_message::Voted& voted, std::string why);

class SeatLines final : public v1::SeatService::Service {
 public:
  // Each one decides whether the caller may make the call. They may block, and run on several
  // threads at once.
  struct Handler {
    std::function<StatusOr<v1::VoteReply>(grpc::ServerContext& context,
                                          const v1::VoteRequest& request)>
        on_vote;
    std::function<StatusOr<v1::LeadReply>(grpc::ServerContext& context,
                                          const v1::LeadRequest& request)>
        on_lead;
  };

  explicit SeatLines(Handler handler) : handler_(std::move(handler)) {}
  // Call it before the server is built.
  void Register(grpc::ServerBuilder* builder);

  grpc::Status Vote(grpc::ServerContext* context, const v1::VoteRequest* request,
                    v1::VoteReply* reply) override;
  grpc::Status Lead(grpc::ServerContext* context, const v1::LeadRequest* request,
                    v1::LeadReply* reply) override;

 private:
  const Handler handler_;
};

}  // namespace longhaul::coordinator
