//! FLPs and EPNs as the scheduler knows them: joining, silence, death, and their messages.

use super::absent::Hold;
use super::open_tf::{Part, Phase};
use super::peer::{EpnNode, EpnSetting, FlpNode, FormerEpn, Unreachable, target_id};
use super::phase::RunPhase;
use super::run_delay::Releasing;
use super::{Action, Recipient, Scheduler};
use sheaf_placement::{LoadView, TargetLoad};
use sheaf_protocol::control::{
    Absent, Announced, Consumed, EpnAddress, EpnPulse, FlpPulse, Hello, Skipped,
};
use sheaf_protocol::{
    Control, DropReason, EpnId, FlpId, Incarnation, NodeId, Record, Role, Source, Target, TfId,
    Timestamp, protect,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a pair that could not reach each other is avoided.
const UNREACHABLE_FOR: Duration = Duration::from_secs(1);

impl Scheduler {
    /// Handles an FLP that has joined, for the first time or again. An earlier life of it is over.
    pub fn handle_flp_joined(&mut self, now: Timestamp, source: Source, hello: &Hello) {
        let former = self.flps.get(&source.flp).map(|node| node.source);
        if let Some(former) = former.filter(|former| *former != source) {
            // TFs may have waited for the former life: its control path was cut.
            self.handle_flp_gone(now, former);
        }
        let is_back = self.gone.remove(&source);
        self.cut_off.remove(&source);
        let stf_bytes_max = hello.stf_bytes_max;
        let mut was_left_behind = false;
        if is_back {
            let roster = self.rosters.last_name();
            self.send(Recipient::AllEpns, Control::SourceBack { source, roster });
        }
        let known = self
            .flps
            .get_mut(&source.flp)
            .filter(|node| node.source == source);
        if let Some(node) = known {
            was_left_behind = node.end_absence(now);
            node.releasing = Releasing::default();
            node.gone_at = None;
            node.stf_bytes_max = stf_bytes_max;
            node.hold = Hold::of(hello);
        } else {
            self.flps.insert(
                source.flp,
                FlpNode {
                    source,
                    stf_bytes_max,
                    hold: Hold::of(hello),
                    absence: None,
                    back_at: None,
                    gone_at: None,
                    is_leaving: false,
                    holds_nothing: false,
                    stopped: None,
                    ended: None,
                    pulse: FlpPulse::default(),
                    releasing: Releasing::default(),
                    first: None,
                    position: None,
                },
            );
        }
        self.send(
            Recipient::Flp(source.flp),
            Control::Epns(self.epn_addresses()),
        );
        if self.phase == RunPhase::Waiting {
            self.begin_if_quorum(now);
        } else if self.is_settling && !is_back {
            // A new FLP begins behind the TFs that the others have made, which they are about to report.
        } else if self.wants_sources()
            && (self.flps[&source.flp].first.is_none() || is_back || was_left_behind)
        {
            self.change_roster();
            self.start_flp(now, source.flp, self.frontier);
        }
    }

    /// Handles the end of the life of an FLP, or of one that is treated so: an STF that it has not sent will not come.
    pub fn handle_flp_gone(&mut self, now: Timestamp, source: Source) {
        let Some(node) = self.flps.get(&source.flp) else {
            return;
        };
        if node.source != source || !self.gone.insert(source) {
            return;
        }
        let has_ended = node.ended.is_some();
        self.drop_sends(Recipient::Flp(source.flp));
        if let Some(node) = self.flps.get_mut(&source.flp) {
            node.gone_at = Some(now);
        }
        if self.phase != RunPhase::Waiting && !has_ended {
            self.change_roster();
        }
        let roster = self.rosters.last_name();
        self.send(Recipient::AllEpns, Control::SourceGone { source, roster });
        let open: Vec<TfId> = self.tfs.keys().collect();
        for tf in protect!(SourceWriteOff, open, else Vec::new()) {
            self.write_off(now, tf, source);
        }
        self.advance_run(now);
    }

    /// Writes off the STF of a member that is gone, unless an EPN may have it already.
    pub(super) fn write_off(&mut self, now: Timestamp, tf: TfId, source: Source) {
        let Some(open) = self.tfs.get(&tf) else {
            return;
        };
        let Some(index) = open.member_index(source) else {
            return;
        };
        let may_be_built = matches!(open.phase, Phase::Building { .. } | Phase::Committed { .. });
        let lost = match open.parts[index] {
            Part::Unknown(_) => !(may_be_built && open.is_adopted),
            Part::Announced(_) => !may_be_built,
            Part::Skipped(_) => false,
        };
        if lost {
            self.skip(now, tf, source, self.gone_reason(source));
        }
    }

    /// Returns the largest STF that may come from an FLP.
    pub(super) fn stf_bytes_max_of(&self, flp: FlpId) -> u64 {
        self.flps
            .get(&flp)
            .map_or(self.config.stf_bytes_max, |node| node.stf_bytes_max)
    }

    /// Handles an EPN that has joined, for the first time or again. The caller has declared an earlier life of it dead.
    pub fn handle_epn_joined(&mut self, now: Timestamp, target: Target, hello: &Hello) {
        let id = target_id(target.epn);
        let is_known = self
            .epns
            .get(&target.epn)
            .is_some_and(|node| node.target == target);
        if is_known {
            self.view.set_available(id, true);
            if let Some(node) = self.epns.get_mut(&target.epn) {
                node.rosters_said.clear();
                node.releasing = Releasing::default();
                node.is_cut = false;
            }
        } else {
            self.forget_dead(target.epn);
            self.leaving.remove(&target.epn);
            let mut load = TargetLoad::new(id, hello.capacity_bytes, hello.slots);
            load.weight_milli = hello.weight_milli;
            load.listed = self.list.has(target.epn);
            if let Some(setting) = self.setting(target.epn) {
                load.weight_milli = setting.weight_milli;
                load.enabled = setting.enabled;
            }
            self.view.insert(load);
            self.epns.insert(
                target.epn,
                EpnNode {
                    target,
                    address: hello.data_address.clone(),
                    is_leaving: false,
                    has_reported: false,
                    is_durable: hello.is_durable,
                    sources: BTreeSet::new(),
                    is_cut: false,
                    is_dead: false,
                    pulse: EpnPulse::default(),
                    consumed: Consumed::default(),
                    releasing: Releasing::default(),
                    losing: Vec::new(),
                    rosters_said: BTreeSet::new(),
                },
            );
            self.send(Recipient::AllFlps, Control::Epns(self.epn_addresses()));
        }
        let gone: Vec<Source> = self.gone.iter().copied().collect();
        let roster = self.rosters.last_name();
        for source in gone {
            let gone = Control::SourceGone { source, roster };
            self.send(Recipient::Epn(target.epn), gone);
        }
        self.handle_epn_returned(now, target);
        self.resume_commits(target);
        self.repeat_all_for(now, target);
        self.begin_if_quorum(now);
        self.place_queued(now);
    }

    /// Handles an EPN that is silent, or whose stream has closed: it gets nothing new, and its undecided TFs move. It
    /// may still finish them: the first report wins.
    pub fn handle_epn_silent(&mut self, now: Timestamp, target: Target) {
        protect!(SilenceDetection, else return);
        if !self.is_current(target) || self.ignores_deaths() {
            return;
        }
        self.view.set_available(target_id(target.epn), false);
        self.forget_reports(target);
        self.move_all_from(now, target);
    }

    /// Moves TFs in building at `target` to other EPNs, as far as there is room.
    pub(super) fn move_all_from(&mut self, now: Timestamp, target: Target) {
        let building: Vec<TfId> = self
            .tfs
            .iter()
            .filter(
                |(_, tf)| matches!(tf.phase, Phase::Building { target: at, .. } if at == target),
            )
            .map(|(tf, _)| tf)
            .collect();
        for tf in building {
            self.move_tf(now, tf, target);
        }
    }

    /// Handles an EPN whose stream has closed: as silence, but retransmission for it needs no limit.
    pub fn handle_epn_cut(&mut self, now: Timestamp, target: Target) {
        if let Some(node) = self.epns.get_mut(&target.epn)
            && node.target == target
        {
            node.is_cut = true;
            self.handle_epn_silent(now, target);
        }
    }

    /// Handles a silent EPN that sends again.
    pub fn handle_epn_heard(&mut self, now: Timestamp, target: Target) {
        if self.is_current(target) {
            self.view.set_available(target_id(target.epn), true);
            self.place_queued(now);
        }
    }

    /// Handles the end of the life of an EPN: TFs that it has not acknowledged are abandoned, or built again.
    pub fn handle_epn_dead(&mut self, now: Timestamp, target: Target) {
        if self.is_current(target) {
            self.drop_sends(Recipient::Epn(target.epn));
        }
        let is_durable = self.stores_durably(target);
        self.note_former(target);
        let stays = self.is_current(target) && self.stays_listed(target.epn);
        if stays {
            self.bury(target);
        } else if self.is_current(target) {
            self.unlist(now, target.epn);
            self.handle_epn_silent(now, target);
            self.view.remove(target_id(target.epn));
            self.epns.remove(&target.epn);
            self.leaving.remove(&target.epn);
            self.unreachable.retain(|(_, epn), _| *epn != target.epn);
            self.unreachable_lapsed
                .retain(|(_, epn), _| *epn != target.epn);
            self.send(Recipient::AllFlps, Control::Epns(self.epn_addresses()));
        }
        // Also of a life that this ICN knows from the log only.
        let committed: Vec<TfId> = self
            .tfs
            .iter()
            .filter(
                |(_, tf)| matches!(&tf.phase, Phase::Committed { target: at, .. } if *at == target),
            )
            .map(|(tf, _)| tf)
            .collect();
        for tf in protect!(Abandonment, committed, else Vec::new()) {
            self.leave_committed(now, tf, target, is_durable);
        }
        self.forget_commits(target);
        if !stays {
            for tf in self.tfs.values_mut() {
                tf.bookings.retain(|booking| booking.target != target);
            }
        }
        self.advance_run(now);
    }

    /// Adds the counts of a life that is over to those of former ones.
    fn note_former(&mut self, target: Target) {
        let Some(node) = self
            .epns
            .get(&target.epn)
            .filter(|node| node.target == target)
        else {
            return;
        };
        let weight_milli = self
            .epn_load(target.epn)
            .map_or(0, |load| load.weight_milli);
        let former = self.former_epns.entry(target.epn).or_default();
        former.received_bytes += node.pulse.received_bytes;
        former.duplicates_refused += node.pulse.duplicates_refused;
        former.digest_mismatches += node.pulse.digest_mismatches;
        former.weight_milli = weight_milli;
    }

    /// Returns the counts of former lives of an EPN.
    #[must_use]
    pub fn former_epn(&self, epn: EpnId) -> FormerEpn {
        self.former_epns.get(&epn).copied().unwrap_or_default()
    }

    pub(super) fn is_current(&self, target: Target) -> bool {
        self.epns
            .get(&target.epn)
            .is_some_and(|node| node.target == target)
    }

    pub(super) fn is_available(&self, target: Target) -> bool {
        self.is_current(target)
            && self
                .view
                .get(target_id(target.epn))
                .is_some_and(|load| load.available && !load.stuck)
    }

    pub(super) fn epn_addresses(&self) -> Vec<EpnAddress> {
        let address = |node: &EpnNode| EpnAddress {
            target: node.target,
            address: node.address.clone(),
        };
        self.epns.values().map(address).collect()
    }

    /// Handles a message of an FLP that has joined.
    pub fn handle_flp(&mut self, now: Timestamp, source: Source, control: Control) {
        if self
            .flps
            .get(&source.flp)
            .is_none_or(|node| node.source != source)
        {
            self.stats.unexpected_messages += 1;
            return;
        }
        match control {
            Control::Announce(items) => self.handle_announce(now, source, &items),
            Control::Skipped(items) => self.handle_skipped(now, source, &items),
            Control::Stopped { next } => self.set_stopped(now, source, next),
            Control::Ended { next } => self.set_ended(now, source, next),
            Control::FlpPulse(pulse) => {
                self.take_time_of(now, &pulse);
                self.handle_flp_pulse(now, source, pulse);
            }
            Control::Position(position) => self.handle_position(now, source, position),
            Control::Released(tfs) => self.handle_released(now, source, &tfs),
            Control::Unreachable { target }
                if !self.is_current(target) || self.ignores_deaths() => {}
            Control::Unreachable { target } => {
                let until = now + UNREACHABLE_FOR;
                let pair = (source.flp, target.epn);
                self.unreachable_lapsed.remove(&pair);
                let reported = self.unreachable.entry(pair);
                let reported = reported.or_insert(Unreachable { since: now, until });
                reported.until = until;
                self.move_from_unreachable(now, source.flp, target);
            }
            Control::Leaving => {
                if let Some(node) = self.flps.get_mut(&source.flp) {
                    node.is_leaving = true;
                }
            }
            _ => self.stats.unexpected_messages += 1,
        }
    }

    /// Ends reports that EPNs are unreachable and that were not repeated. For as long again such a pair is neither
    /// reachable nor unreachable: the reports of all FLPs of an EPN that is gone lapse one after the other.
    pub(super) fn lapse_unreachable(&mut self, now: Timestamp) {
        self.unreachable_lapsed.retain(|_, until| *until > now);
        let lapsed = self.unreachable.extract_if(.., |_, pair| pair.until <= now);
        let lapsed = lapsed.map(|(pair, _)| (pair, now + UNREACHABLE_FOR));
        self.unreachable_lapsed.extend(lapsed);
    }

    fn handle_announce(&mut self, now: Timestamp, source: Source, items: &[Announced]) {
        for item in items {
            let stf_bytes_max = self.config.stf_bytes_max;
            if !self.open_tf(now, item.tf, Some(source)) {
                self.accounting.source(source.flp).outside += 1;
                continue;
            }
            let open = self.tfs.get_mut(&item.tf).expect("opened just now");
            let Some(index) = open.member_index(source) else {
                self.accounting.source(source.flp).outside += 1;
                continue;
            };
            if !open.is_unbuilt() && matches!(open.parts[index], Part::Unknown(_)) {
                self.accounting.source(source.flp).outside += 1;
                continue;
            }
            if item.bytes > stf_bytes_max {
                self.skip(now, item.tf, source, DropReason::Oversize);
                continue;
            }
            let is_undecided = open.is_undecided();
            match open.parts[index] {
                Part::Announced(_) => {
                    self.stats.announces_repeated += 1;
                    self.repeat_assign(item.tf, source.flp);
                    continue;
                }
                Part::Skipped(_) if !open.is_unbuilt() => continue,
                Part::Skipped(_) if is_undecided => self.accounting.source(source.flp).skipped -= 1,
                Part::Unknown(_) | Part::Skipped(_) => {}
            }
            open.parts[index] = Part::Announced(item.bytes);
            self.accounting.source(source.flp).announced += u64::from(is_undecided);
            self.handle_part_heard(now, item.tf);
        }
    }

    fn handle_skipped(&mut self, now: Timestamp, source: Source, items: &[Skipped]) {
        for item in items {
            if self.open_tf(now, item.tf, Some(source)) {
                self.skip(now, item.tf, source, item.reason);
            }
        }
    }

    /// Notes that `source` has no STF of `tf` and never will.
    pub(super) fn skip(&mut self, now: Timestamp, tf: TfId, source: Source, reason: DropReason) {
        let Some(open) = self.tfs.get_mut(&tf) else {
            return;
        };
        let Some(index) = open.member_index(source) else {
            return;
        };
        if !open.is_unbuilt() || matches!(open.parts[index], Part::Skipped(_)) {
            return;
        }
        let is_undecided = open.is_undecided();
        if is_undecided && matches!(open.parts[index], Part::Announced(_)) {
            let accounting = self.accounting.source(source.flp);
            accounting.announced -= 1;
            accounting.outside += 1;
        }
        open.parts[index] = Part::Skipped(reason);
        self.accounting.source(source.flp).skipped += u64::from(is_undecided);
        if let Phase::Building { target, .. } = open.phase {
            let absent = Absent {
                tf,
                flps: vec![source.flp],
            };
            self.send(Recipient::Epn(target.epn), Control::Absent(vec![absent]));
        }
        self.handle_part_heard(now, tf);
    }

    fn handle_flp_pulse(&mut self, now: Timestamp, source: Source, pulse: FlpPulse) {
        let patience = self.repeat_after(pulse.run_delay_ns);
        let Some(node) = self.flps.get_mut(&source.flp) else {
            return;
        };
        node.pulse = pulse;
        node.holds_nothing = node.ended.is_some() && pulse.held_stfs == 0;
        let (applied, said) = (pulse.released_version, self.released_said);
        let has_missed = node.releasing.is_missed(now, applied, said, patience);
        if node.is_leaving && node.holds_nothing {
            self.send(Recipient::Flp(source.flp), Control::Dismissed);
        }
        if has_missed {
            self.stats.releases_repeated += 1;
            self.send(Recipient::Flp(source.flp), Control::Release(self.release()));
        }
    }

    /// Handles a message of an EPN that has joined.
    pub fn handle_epn(&mut self, now: Timestamp, target: Target, control: Control) {
        if !self.is_current(target) {
            self.stats.unexpected_messages += 1;
            return;
        }
        match control {
            Control::Built(items) => {
                for item in &items {
                    self.handle_built(now, target, item);
                }
            }
            Control::CommitAck { tfs, consumed } => {
                self.note_consumed(now, target, consumed);
                for tf in tfs {
                    self.handle_commit_ack(now, target, tf);
                }
                self.place_queued(now);
                self.advance_run(now);
            }
            Control::Corrupt { tf, flp } => {
                if let Some(source) = self.member(tf, flp) {
                    self.skip(now, tf, source, DropReason::CorruptAtSource);
                }
            }
            Control::Stored(tfs) => self.handle_stored(target, &tfs),
            Control::Undelivered(tfs) => self.handle_undelivered(now, target, &tfs),
            Control::NotStored(tfs) => self.handle_not_stored(now, target, &tfs),
            Control::EpnPulse(pulse) => self.handle_epn_pulse(now, target, pulse),
            Control::Sources(sources) => self.handle_sources(now, target, &sources),
            Control::Freed(consumed) => self.handle_freed(now, target, consumed),
            Control::Slots(items) => self.handle_slots(now, target, &items),
            Control::Leaving => {
                if let Some(node) = self.epns.get_mut(&target.epn) {
                    node.is_leaving = true;
                    self.leaving.insert(target.epn);
                }
                self.view.set_enabled(target_id(target.epn), false);
                self.advance_run(now);
            }
            _ => self.stats.unexpected_messages += 1,
        }
    }

    /// Drains an EPN on behalf of an operator: it finishes its TFs and goes. The EPN is asked to announce its leave
    /// itself, also to a later leader.
    ///
    /// # Errors
    ///
    /// The reason why the order is refused, for the operator.
    pub fn handle_drain(&mut self, now: Timestamp, epn: EpnId) -> Result<String, String> {
        let node = self.epns.get_mut(&epn);
        node.ok_or_else(|| format!("{epn} is not in the farm"))?
            .is_leaving = true;
        self.leaving.insert(epn);
        self.view.set_enabled(target_id(epn), false);
        self.advance_run(now);
        let has = self
            .view
            .get(target_id(epn))
            .map_or(0, |load| load.booked_slots);
        Ok(format!(
            "{epn} gets nothing new, finishes {has} TFs and leaves"
        ))
    }

    /// Changes the settings of an EPN on behalf of an operator, in this life and in later ones, until the run ends.
    ///
    /// # Errors
    ///
    /// The reason why the order is refused, for the operator.
    pub fn handle_set(
        &mut self,
        epn: EpnId,
        weight_milli: Option<u32>,
        enabled: Option<bool>,
    ) -> Result<String, String> {
        let id = target_id(epn);
        let load = *self
            .view
            .get(id)
            .ok_or_else(|| format!("{epn} is not in the farm"))?;
        let setting = EpnSetting {
            weight_milli: weight_milli.unwrap_or(load.weight_milli),
            enabled: enabled.unwrap_or(load.enabled),
        };
        if setting.weight_milli == 0 {
            return Err("a weight is above 0; to give an EPN nothing, disable it".to_owned());
        }
        if setting.enabled && self.epns.get(&epn).is_some_and(|node| node.is_leaving) {
            return Err(format!("{epn} is leaving"));
        }
        let weight = f64::from(setting.weight_milli) / 1000.0;
        let state = if setting.enabled {
            "enabled"
        } else {
            "disabled"
        };
        let told = format!("{epn} is {state}, with weight {weight}");
        if weight_milli.is_none() && enabled.is_none() {
            return Ok(told);
        }
        self.view.set_weight(id, setting.weight_milli);
        self.view.set_enabled(id, setting.enabled);
        self.settings.insert(epn, setting);
        let EpnSetting {
            weight_milli,
            enabled,
        } = setting;
        self.actions.push_back(Action::Append(Record::Set {
            epn,
            weight_milli,
            enabled,
        }));
        Ok(told)
    }

    fn member(&self, tf: TfId, flp: FlpId) -> Option<Source> {
        self.tfs
            .get(&tf)?
            .members
            .iter()
            .copied()
            .find(|member| member.flp == flp)
    }

    fn handle_epn_pulse(&mut self, now: Timestamp, target: Target, pulse: EpnPulse) {
        let id = target_id(target.epn);
        let room = |view: &LoadView| {
            let load = view.get(id);
            load.map(|load| (load.free_slots(), load.free_bytes(), load.is_online()))
        };
        let before = room(&self.view);
        let patience = self.repeat_after(pulse.run_delay_ns);
        let Some(node) = self.epns.get_mut(&target.epn) else {
            return;
        };
        node.pulse = pulse;
        node.has_reported = true;
        let (applied, said) = (pulse.released_version, self.released_said);
        let has_missed = node.releasing.is_missed(now, applied, said, patience);
        for (_, bytes) in node
            .losing
            .extract_if(.., |(version, _)| *version <= applied)
        {
            self.view.release(id, bytes);
        }
        self.note_consumed(now, target, pulse.consumed);
        self.set_stuck(now, target, pulse.storage_full);
        if protect!(ReleaseRetransmit, when has_missed) {
            self.stats.releases_repeated += 1;
            let release = self.release_for(target);
            self.send(Recipient::Epn(target.epn), Control::Release(release));
        }
        // Pulses come by the ten thousand a second from a large farm, and most change nothing.
        let gained = before
            .zip(room(&self.view))
            .is_some_and(|(was, is)| is.0 > was.0 || is.1 > was.1 || (is.2 && !was.2));
        if gained {
            self.place_queued(now);
        }
    }

    /// Returns whether the node has asked to leave: when its stream closes it has left, and has not died.
    #[must_use]
    pub fn is_leaving(&self, node: NodeId) -> bool {
        match node.role {
            Role::Flp => {
                let flp = self.flps.get(&FlpId(node.index));
                flp.is_some_and(|node| node.is_leaving && node.holds_nothing)
            }
            Role::Epn => {
                let epn = self.epns.get(&EpnId(node.index));
                epn.is_some_and(|node| node.is_leaving)
            }
            Role::Icn | Role::Operator | Role::Writer => false,
        }
    }

    /// Returns whether the FLP has reported that it will make nothing more.
    #[must_use]
    pub fn flp_has_ended(&self, flp: FlpId) -> bool {
        self.flps.get(&flp).is_some_and(|node| node.ended.is_some())
    }

    /// Returns the life of the FLP that joined last.
    #[must_use]
    pub fn flp_incarnation(&self, flp: FlpId) -> Option<Incarnation> {
        self.flps.get(&flp).map(|node| node.source.incarnation)
    }

    /// Returns the life of the EPN that is a member now.
    #[must_use]
    pub fn epn_incarnation(&self, epn: EpnId) -> Option<Incarnation> {
        self.epns.get(&epn).map(|node| node.target.incarnation)
    }

    /// Returns the load of the EPN as the policy sees it.
    #[must_use]
    pub fn epn_load(&self, epn: EpnId) -> Option<&TargetLoad> {
        self.view.get(target_id(epn))
    }

    /// Returns the last heartbeat of the FLP.
    #[must_use]
    pub fn flp_pulse(&self, flp: FlpId) -> Option<&FlpPulse> {
        self.flps.get(&flp).map(|node| &node.pulse)
    }

    /// Returns the last heartbeat of the EPN.
    #[must_use]
    pub fn epn_pulse(&self, epn: EpnId) -> Option<&EpnPulse> {
        self.epns.get(&epn).map(|node| &node.pulse)
    }
}
