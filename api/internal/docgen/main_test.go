package main

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// descriptorSet is the API as compiled into the generated code, which has no
// comments, but one put in.
func descriptorSet(t *testing.T) []byte {
	t.Helper()
	action := protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_action_proto)
	action.SourceCodeInfo = &descriptorpb.SourceCodeInfo{Location: []*descriptorpb.SourceCodeInfo_Location{{
		Path: []int32{4, 0}, Span: []int32{1, 0, 1}, LeadingComments: proto.String(" A first line\n with a | and max_cores.\n"),
	}}}
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(durationpb.File_google_protobuf_duration_proto),
		protodesc.ToFileDescriptorProto(timestamppb.File_google_protobuf_timestamp_proto),
		action,
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_node_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_stream_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_usage_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_image_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_trajectory_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_operator_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_engine_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_access_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_file_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_migration_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_worker_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_reward_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_snapshot_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_rollout_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_agent_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_quota_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_class_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_job_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_turn_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_ledger_proto),
		protodesc.ToFileDescriptorProto(rotav1.File_rota_v1_residency_proto),
	}}
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestThePageHasEverything(t *testing.T) {
	var out bytes.Buffer
	if err := run(bytes.NewReader(descriptorSet(t)), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n## OperatorService\n", "\n## QuotaService\n", "\n## TurnService\n", "\n## EngineService\n", "\n## ResidencyService\n", "\n### ActionSpec\n", "A first line\nwith a \\| and max\\_cores.\n",
		"| RunAction | [RunActionRequest](#runactionrequest) | stream of [RunActionResponse](#runactionresponse) |",
		"| `env` | map of string to string |", "| `argv` | list of string |", "| `afterRevision` | optional uint64 |",
		"| `output` | [OutputChunk](#outputchunk) | One of `update`. |", "| `runTimeout` | Duration |",
		"| `LOSS_POLICY_RETRY` |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestWhatIsNoDescriptorSetIsRefused(t *testing.T) {
	for _, in := range []string{"\xff", ""} {
		if err := run(strings.NewReader(in), new(bytes.Buffer)); err == nil {
			t.Errorf("%q makes a page", in)
		}
	}
}
