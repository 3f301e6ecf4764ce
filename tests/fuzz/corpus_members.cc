#include <fmt/core.h>

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/v1/standby.pb.h"
#include "longhaul/v1/worker.pb.h"
#include "proto/wire/tensor_header.h"
#include "run/boundary/carried_tokens.h"
#include "tests/fuzz/corpus.h"

namespace longhaul {
namespace {

std::string ActBytes(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}
std::string WithSize(std::string_view bytes) {
  return ActBytes({static_cast<int>(bytes.size() & 255), static_cast<int>(bytes.size() >> 8)}) +
         std::string(bytes);
}

// worker_reports_fuzz.cc: u8 act, u16 size, the bytes. Acts below 4 are messages; 16 more: of the
// other worker. Acts of kGoOn + 32 n are step n of an honest run.
constexpr int kGoOn = 5, kGreet = 4, kPass = 6, kAsk = 7, kOther = 16;

std::string Act(int act, std::string_view bytes = {}) {
  return ActBytes({act}) + WithSize(bytes);
}
std::string Report(const v1::WorkerMessage& message, int act = 0) {
  return Act(act, message.SerializeAsString());
}

// Brings the hostile run to training.
std::string HonestStart() {
  std::string acts;
  for (int step = 0; step < 4; ++step) {
    acts += Act(kGoOn + 32 * step);
    if (step > 0) acts += Act(kGoOn + kOther + 32 * step);
  }
  return acts;
}

void PutReports(const Corpus& corpus) {
  const auto about = [](const char* run, uint64_t epoch = 1) {
    v1::WorkerMessage message;
    message.set_run_id(run);
    message.set_epoch(epoch);
    return message;
  };
  for (const char* run : {"bad-1", "good-1"}) {
    const std::string name = std::string(run).substr(0, 3);
    v1::WorkerMessage error = about(run);
    error.mutable_error()->set_message("broken");
    error.mutable_error()->set_lost_edge(0);
    v1::WorkerMessage step = about(run);
    step.mutable_step()->set_step(1);
    step.mutable_step()->set_seconds(0.5);
    step.mutable_step()->set_has_loss(true);
    step.mutable_step()->set_loss(2);
    step.mutable_step()->add_links()->set_edge(0);
    v1::WorkerMessage shard = about(run);
    shard.mutable_shard()->set_step(2);
    v1::CheckpointFile& file = *shard.mutable_shard()->add_files();
    file.set_name("stage-0.params.safetensors");
    file.set_sha256(std::string(64, 'a'));
    file.set_bytes(10);
    v1::WorkerMessage link = about(run);
    link.mutable_link()->set_edge(0);
    link.mutable_link()->set_state("lost");
    v1::WorkerMessage finished = about(run);
    finished.mutable_finished()->set_step(4);
    v1::WorkerMessage log = about(run);
    log.mutable_log()->set_text("a line\n\x1b[2J");
    v1::WorkerMessage ready = about(run);
    ready.mutable_stage_ready()->set_start_step(0);
    v1::WorkerMessage times = about(run);
    times.mutable_layer_times()->set_block_forward(0.001);
    v1::WorkerMessage checked = about(run);
    checked.mutable_shards_checked()->set_check(1);
    checked.mutable_shards_checked()->add_shards()->set_name("stage-0.params.safetensors");
    v1::WorkerMessage probed = about(run);
    probed.mutable_link_probed()->set_probe(1);
    probed.mutable_link_probed()->set_goodput_bits_per_second(1e9);
    v1::WorkerMessage tried = about(run);
    tried.mutable_reach_tried()->set_check(1);
    tried.mutable_reach_tried()->add_problems("no answer");
    v1::WorkerMessage retuned = about(run);
    retuned.mutable_retuned()->set_retune(1);
    v1::WorkerMessage validation = about(run);
    validation.mutable_validation()->set_step(2);
    validation.mutable_validation()->set_loss(2);
    v1::WorkerMessage trace = about(run);
    trace.mutable_trace()->set_request(1);
    trace.mutable_trace()->add_steps()->add_spans()->set_length_ns(5);
    v1::WorkerMessage samples = about(run);
    samples.mutable_samples()->set_step(1);
    samples.mutable_samples()->add_samples()->set_text("text");
    v1::WorkerMessage heartbeat = about("", 0);
    heartbeat.mutable_heartbeat()->mutable_at_hand()->set_run_id(run);
    heartbeat.mutable_heartbeat()->mutable_resident()->set_run_id(run);

    corpus.Put("worker_reports", name + "_planning",
               Report(times) + Report(probed) + Report(tried) + Report(checked) + Act(kPass, "12"));
    corpus.Put("worker_reports", name + "_training",
               HonestStart() + Report(step) + Report(step, kOther) + Report(shard) +
                   Report(validation, kOther) + Report(link) + Report(retuned) + Report(log));
    corpus.Put("worker_reports", name + "_errors",
               HonestStart() + Report(error) + Act(kPass, std::string(20, 'x')) + Report(ready));
    corpus.Put("worker_reports", name + "_ends",
               HonestStart() + Report(finished) + Report(finished, kOther) +
                   Act(kAsk + 16 * 3, "a") + Report(trace) + Act(kAsk + 16 * 6) + Report(samples) +
                   Report(heartbeat) + Act(kAsk + 16));
    v1::Hello hello;
    hello.set_protocol_min(9);
    hello.set_protocol_max(9);
    hello.set_incarnation("2");
    hello.set_run_id(run);
    hello.set_epoch(1);
    hello.mutable_cell()->set_stage(0);
    hello.set_term(1);
    v1::DataEndpoint& endpoint = *hello.add_endpoints();
    endpoint.set_transport("ucx");
    endpoint.add_addresses("a:1");
    hello.mutable_resident()->set_run_id(run);
    hello.add_devices()->set_kind("cpu");
    hello.mutable_relay()->set_address("h:7");
    hello.mutable_relay()->set_secret(std::string(32, 's'));
    corpus.Put("worker_reports", name + "_greets",
               Act(kGreet, hello.SerializeAsString()) + HonestStart() + Report(heartbeat) +
                   Act(kGreet + kOther, hello.SerializeAsString()) + Act(kAsk, "b"));
  }
}

// changes_fuzz.cc: u8 size of a piece, the piece; a short one is the last of its change.
void PutChanges(const Corpus& corpus) {
  const auto change = [](std::initializer_list<const char*> statements) {
    v1::StoreChange whole;
    whole.set_number(1);
    for (const char* sql : statements) whole.add_statements()->set_sql(sql);
    return whole;
  };
  const auto put = [&](const std::string& name, const v1::StoreChange& whole) {
    const std::string bytes = whole.SerializeAsString();
    std::string pieces;
    for (size_t at = 0; at <= bytes.size(); at += 255) {
      const std::string piece = bytes.substr(at, 255);
      pieces += static_cast<char>(piece.size());
      pieces += piece;
    }
    corpus.Put("standby_changes", name, pieces);
  };
  v1::StoreChange step =
      change({"INSERT OR REPLACE INTO steps(run_id, step, record) VALUES(?,?,?)"});
  step.mutable_statements(0)->add_values()->set_text("run-1");
  step.mutable_statements(0)->add_values()->set_integer(7);
  step.mutable_statements(0)->add_values()->set_blob("\1\2");
  put("step", step);
  put("removes", change({"DELETE FROM runs WHERE id='a'", "DELETE FROM steps WHERE run_id='a'"}));
  put("older", change({"DELETE FROM worker_logs WHERE run_id='a' AND sequence<=(SELECT sequence "
                       "FROM worker_logs "
                       "WHERE run_id='a' ORDER BY sequence DESC LIMIT 1 OFFSET 5)"}));
  put("refused-attach", change({"ATTACH DATABASE '/tmp/longhaul-attached' AS other"}));
  put("refused-create", change({"CREATE TABLE other(a)"}));
  put("refused-commit", change({"DELETE FROM runs", "COMMIT"}));
  put("refused-endless",
      change({"DELETE FROM runs WHERE id IN (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL "
              "SELECT x+1 FROM c) SELECT x FROM c)"}));
  put("refused-memory", change({"DELETE FROM runs WHERE id=zeroblob(1000000000)"}));
  put("refused-schema", change({"DELETE FROM sqlite_master"}));
  put("refused-pragma", change({"PRAGMA writable_schema=ON"}));
  put("refused-nothing", change({" "}));
  corpus.Put("standby_changes", "leadership",
             R"({"role": "standby", "term": 3, "predecessor": "a:1", "whole": true})");
}

// tensor_assembler_fuzz.cc: acts of five bytes, or 0 and a whole header.
void PutTensors(const Corpus& corpus) {
  const std::string small = ActBytes({5, 200, 10, 1, 0}), large = ActBytes({5, 0, 140, 1, 0});
  std::string whole, kinds;
  for (int i = 0; i < 8; ++i) whole += i % 2 == 0 ? small : large;
  for (int i = 0; i < 20; ++i) kinds += ActBytes({5, 30, 0, 1, i});
  corpus.Put("tensor_assembler", "in_order", whole);
  corpus.Put("tensor_assembler", "kinds_of_passes", kinds);
  corpus.Put("tensor_assembler", "lies", small + ActBytes({5, 200, 10, 1, 0, 1, 200, 10, 1, 0}));
  std::array<std::byte, wire::kTensorHeaderBytes> header;
  wire::EncodeTensorHeader({.slices = 2, .blob_bytes = 1000, .chunks = 1}, header);
  const std::string bytes(reinterpret_cast<const char*>(header.data()), header.size());
  corpus.Put("tensor_assembler", "header", ActBytes({128}) + bytes + small);
}

void PutCarried(const Corpus& corpus) {
  corpus.Put("carried_tokens", "none", ActBytes({0, 3, 2}));
  const std::vector<uint32_t> ids = {1, 2, 0, 1, 2, 0};
  for (const bool many : {false, true}) {
    const uint32_t vocabulary = many ? 70'000u : 5u;
    const codec::Shape shape{2, 3, 8};
    std::string behind(CarriedBytes(shape, vocabulary), '\0');
    WriteCarried(ids, vocabulary, std::as_writable_bytes(std::span(behind)));
    corpus.Put("carried_tokens", many ? "four_bytes" : "two_bytes",
               ActBytes({2, 3, many ? 1 : 4}) + behind);
  }
}

// http_answers_fuzz.cc: answers with their sizes; the last one again and again.
void PutAnswers(const Corpus& corpus) {
  const std::string first =
      "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-0/20\r\nETag: \"a\"\r\n"
      "Content-Length: 1\r\nConnection: close\r\n\r\nx";
  const auto range = [](int begin, int end) {
    return fmt::format(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {}-{}/20\r\nETag: \"a\"\r\n"
        "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
        begin, end, end - begin + 1, std::string(static_cast<size_t>(end - begin + 1), 'x'));
  };
  const std::string whole =
      "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 20\r\nConnection: close\r\n\r\n" +
      std::string(20, 'x');
  corpus.Put("http_answers", "ranges",
             WithSize(first) + WithSize(range(0, 15)) + WithSize(range(16, 19)) + WithSize(whole));
  corpus.Put("http_answers", "whole", WithSize(whole));
  corpus.Put("http_answers", "refused-chunked",
             WithSize("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: "
                      "close\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"));
  corpus.Put("http_answers", "another_tag", WithSize(first) + WithSize(whole));
  corpus.Put(
      "http_answers", "refused-not_found",
      WithSize("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"));
  corpus.Put("http_answers", "refused-moved",
             WithSize("HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\nContent-Length: "
                      "0\r\nConnection: close\r\n\r\n"));
  corpus.Put(
      "http_answers", "refused-later",
      WithSize(
          "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
  corpus.Put("http_answers", "refused-nonsense", WithSize("\x16\x03\x01 nonsense"));
}

}  // namespace

void PutMembers(const Corpus& corpus) {
  PutReports(corpus);
  PutChanges(corpus);
  PutTensors(corpus);
  PutCarried(corpus);
  PutAnswers(corpus);
}

}  // namespace longhaul
