/**
 * Calls of operators: queues, kinds, schedules, errors, hooks, operations, workers, tokens. Each is one route.
 * Bodies and answers are those of the API, with its names (wire.ts); docs/api.md says what they mean.
 */
import { Routes, seg, type Items } from "./routes.js";
import type {
  ErrorGroup, GroupSettings, GroupSettingsAnswer, Hook, HookDeclaration, Job, Kind, KindDeclaration, Limit, ListedKind, ListedQueue, NewOperation,
  NewSchedule, NewSnooze, NewToken,
  Operation, OperationPreview, OperationPreviewRequest, OperationState, Preview, PreviewRequest, Queue, QueueExplanation,
  QueueSettings, QueueWithLimits, Schedule, ScheduleState, Tick, Token, TokenMade, Worker, WorkerDetail,
} from "./wire.js";

export class Queues extends Routes {
  list(): Items<ListedQueue> {
    return this.items("/queues");
  }

  /** Counts, limits and usage. */
  get(queue: string): Promise<QueueWithLimits> {
    return this.read(`/queues/${seg(queue)}`);
  }

  /** Replaces all limits of the queue: what is left out is no longer limited. */
  set(queue: string, settings: QueueSettings): Promise<QueueWithLimits> {
    return this.replace(`/queues/${seg(queue)}`, settings);
  }

  /** Starts no more jobs of the queue. */
  pause(queue: string): Promise<Queue> {
    return this.act(`/queues/${seg(queue)}/pause`, undefined, "always");
  }

  resume(queue: string): Promise<Queue> {
    return this.act(`/queues/${seg(queue)}/resume`, undefined, "always");
  }

  /** Why nothing of it starts. */
  explain(queue: string): Promise<QueueExplanation> {
    return this.read(`/queues/${seg(queue)}/explain`);
  }

  /** The queue, then its groups, with usage. */
  limits(queue: string): Items<Limit> {
    return this.items(`/queues/${seg(queue)}/limits`);
  }

  /** Limits of one group, otherwise than the others. */
  setGroup(queue: string, group: string, settings: GroupSettings): Promise<GroupSettingsAnswer> {
    return this.replace(`/queues/${seg(queue)}/groups/${seg(group)}`, settings);
  }

  /** The group is as the others again. */
  resetGroup(queue: string, group: string): Promise<void> {
    return this.drop(`/queues/${seg(queue)}/groups/${seg(group)}`);
  }
}

export class Kinds extends Routes {
  list(): Promise<ListedKind[]> {
    return this.read("/kinds");
  }

  /** Replaces the whole declaration. */
  declare(kind: string, declaration: KindDeclaration = {}): Promise<Kind> {
    return this.replace(`/kinds/${seg(kind)}`, declaration);
  }

  /** No new jobs of it; existing ones go on. */
  delete(kind: string): Promise<void> {
    return this.drop(`/kinds/${seg(kind)}`);
  }
}

export class Schedules extends Routes {
  list(query: { state?: ScheduleState; kind?: string } = {}): Items<Schedule> {
    return this.items("/schedules", query);
  }

  get(name: string): Promise<Schedule> {
    return this.read(`/schedules/${seg(name)}`);
  }

  /** Replaces the whole. With `revision`: only if nobody has edited it since (412). */
  set(name: string, schedule: NewSchedule, options: { revision?: number } = {}): Promise<Schedule> {
    return this.replace(`/schedules/${seg(name)}`, schedule, options.revision === undefined ? {} : { "if-match": `"${options.revision}"` });
  }

  /** Its jobs stay. */
  delete(name: string): Promise<void> {
    return this.drop(`/schedules/${seg(name)}`);
  }

  pause(name: string): Promise<Schedule> {
    return this.act(`/schedules/${seg(name)}/pause`, undefined, "always");
  }

  resume(name: string): Promise<Schedule> {
    return this.act(`/schedules/${seg(name)}/resume`, undefined, "always");
  }

  /** Now, or for a tick that is named: then the same tick again is answered with the same job. */
  run(name: string, tick?: string): Promise<Job> {
    return this.act(`/schedules/${seg(name)}/run`, tick === undefined ? undefined : { tick }, tick === undefined ? "unsent" : "always");
  }

  /** The newest: fired, skipped, missed, refused, and why. */
  ticks(name: string): Promise<Tick[]> {
    return this.read(`/schedules/${seg(name)}/ticks`);
  }

  /** When it would run. Stores nothing. */
  preview(request: PreviewRequest): Promise<Preview> {
    return this.act("/schedules/preview", request, "always");
  }
}

export class Errors extends Routes {
  /** Causes of dead letters, those seen last first. */
  list(query: { kind?: string; queue?: string; since?: string; dead?: boolean; snoozed?: boolean } = {}): Items<ErrorGroup> {
    return this.items("/errors", query);
  }

  get(fingerprint: string): Promise<ErrorGroup> {
    return this.read(`/errors/${seg(fingerprint)}`);
  }

  /** Says that the cause is known. Changes neither jobs nor counts. */
  snooze(fingerprint: string, snooze: NewSnooze): Promise<ErrorGroup> {
    return this.replace(`/errors/${seg(fingerprint)}/snooze`, snooze);
  }

  unsnooze(fingerprint: string): Promise<void> {
    return this.drop(`/errors/${seg(fingerprint)}/snooze`);
  }
}

export class Hooks extends Routes {
  list(): Promise<Hook[]> {
    return this.read("/hooks");
  }

  get(name: string): Promise<Hook> {
    return this.read(`/hooks/${seg(name)}`);
  }

  /** Replaces the whole. */
  set(name: string, hook: HookDeclaration): Promise<Hook> {
    return this.replace(`/hooks/${seg(name)}`, hook);
  }

  delete(name: string): Promise<void> {
    return this.drop(`/hooks/${seg(name)}`);
  }

  pause(name: string): Promise<Hook> {
    return this.act(`/hooks/${seg(name)}/pause`, undefined, "always");
  }

  resume(name: string): Promise<Hook> {
    return this.act(`/hooks/${seg(name)}/resume`, undefined, "always");
  }
}

export class Operations extends Routes {
  /** What an operation would change. Its `token` goes into `begin`. */
  preview(request: OperationPreviewRequest): Promise<OperationPreview> {
    return this.act("/operations/preview", request, "always");
  }

  /** The server carries it out in small steps, at a rate. */
  begin(operation: NewOperation): Promise<Operation> {
    return this.act("/operations", operation);
  }

  list(query: { state?: OperationState } = {}): Items<Operation> {
    return this.items("/operations", query);
  }

  get(id: string): Promise<Operation> {
    return this.read(`/operations/${seg(id)}`);
  }

  setRate(id: string, rate: number): Promise<Operation> {
    return this.patch(`/operations/${seg(id)}`, { rate });
  }

  pause(id: string): Promise<Operation> {
    return this.act(`/operations/${seg(id)}/pause`);
  }

  resume(id: string): Promise<Operation> {
    return this.act(`/operations/${seg(id)}/resume`);
  }

  /** What is done stays done. */
  stop(id: string): Promise<Operation> {
    return this.act(`/operations/${seg(id)}/stop`);
  }
}

export class Workers extends Routes {
  list(): Items<Worker> {
    return this.items("/workers");
  }

  /** With the jobs that it holds. */
  get(worker: string): Promise<WorkerDetail> {
    return this.read(`/workers/${seg(worker)}`);
  }

  /** It finishes what it has and gets no more. */
  drain(worker: string): Promise<WorkerDetail> {
    return this.act(`/workers/${seg(worker)}/drain`, undefined, "always");
  }

  undrain(worker: string): Promise<WorkerDetail> {
    return this.act(`/workers/${seg(worker)}/undrain`, undefined, "always");
  }
}

export class Tokens extends Routes {
  list(): Promise<Token[]> {
    return this.read("/tokens");
  }

  /** The only answer that has the secret. */
  create(token: NewToken): Promise<TokenMade> {
    return this.act("/tokens", token);
  }

  revoke(id: string): Promise<void> {
    return this.drop(`/tokens/${seg(id)}`);
  }
}
