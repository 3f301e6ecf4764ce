#include "coordinator/standby/seat_lines.h"

#include "coordinator/store/journal_core.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {

v1::VoteRequest RequestOf(const seat_message::Vote& vote) {
  v1::VoteRequest request;
  request.set_term(vote.term);
  request.set_tenure(vote.tenure.value());
  request.set_seat(vote.seat);
  *request.mutable_history() = ToProto(vote.history);
  return request;
}

seat_message::Vote VoteOf(const v1::VoteRequest& request) {
  return {.term = request.term(),
          .tenure = Tenure(request.tenure()),
          .seat = request.seat(),
          .history = FromProto(request.history())};
}

v1::VoteReply ReplyOf(const seat_message::Voted& voted, std::string why) {
  v1::VoteReply reply;
  reply.set_granted(voted.granted);
  reply.set_newest(voted.newest);
  reply.set_seat(voted.seat);
  if (!voted.granted) reply.set_why(std::move(why));
  return reply;
}

void SeatLines::Register(grpc::ServerBuilder* builder) {
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->RegisterService(this);
}

grpc::Status SeatLines::Vote(grpc::ServerContext* context, const v1::VoteRequest* request,
                             v1::VoteReply* reply) {
  StatusOr<v1::VoteReply> voted = handler_.on_vote(*context, *request);
  if (!voted.ok()) return ToGrpc(voted.status());
  *reply = *std::move(voted);
  return grpc::Status::OK;
}

grpc::Status SeatLines::Lead(grpc::ServerContext* context, const v1::LeadRequest* request,
                             v1::LeadReply* reply) {
  StatusOr<v1::LeadReply> done = handler_.on_lead(*context, *request);
  if (!done.ok()) return ToGrpc(done.status());
  *reply = *std::move(done);
  return grpc::Status::OK;
}

}  // namespace longhaul::coordinator
