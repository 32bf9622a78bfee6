//! Three brokers, each behind a proxy, shared by all scenarios that harm brokers or the network: topics are on all
//! three, the first is the controller. The clients under test go through the proxies; the load, the judge and the
//! brokers among themselves do not.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::job::Job;
use crate::kafka::{Broker, Routes};
use crate::links::Links;
use crate::proxy::{Condition, Plan, Proxy};
use crate::replicated::{self, PROPERTIES, REPLICAS};
use crate::stage::PARTITIONS;

/// Three brokers.
pub struct Three {
    pub brokers: Vec<Broker>,
    proxies: Vec<Proxy>,
}

/// The shared three, in good health.
pub fn lock() -> MutexGuard<'static, Three> {
    static THREE: OnceLock<Mutex<Three>> = OnceLock::new();
    let mut three = THREE.get_or_init(|| Mutex::new(start())).lock().unwrap_or_else(PoisonError::into_inner);
    three.heal();
    three
}

fn start() -> Three {
    start_on(None)
}

/// Three others, with links between them that can be cut one by one.
pub fn apart() -> (Three, Links) {
    let links = Links::new();
    (start_on(Some(&links)), links)
}

fn start_on(links: Option<&Links>) -> Three {
    let proxies: Vec<Proxy> = (0..REPLICAS).map(|_| Proxy::start()).collect();
    let mut brokers: Vec<Broker> = Vec::new();
    for (number, proxy) in (1..).zip(&proxies) {
        let routes = Routes { clients: Some(proxy.port()), peers: links.map(|links| links.peers(number)) };
        let mut properties = PROPERTIES.to_vec();
        let voter = links.map(|links| links.voter(number));
        let broker = match brokers.first() {
            None => Broker::start_routed(routes, &properties),
            Some(first) => {
                properties.extend(voter.as_deref().map(|voter| ("controller.quorum.voters", voter)));
                first.join_routed(number, routes, &properties)
            }
        };
        proxy.forward_to(broker.behind_proxy());
        if let Some(links) = links {
            links.lead_to(number, &broker);
        }
        brokers.push(broker);
    }
    Three { brokers, proxies }
}

impl Three {
    /// Repairs what an earlier scenario has left broken.
    fn heal(&mut self) {
        for broker in &mut self.brokers {
            match broker.pid() {
                Some(_) => broker.thaw(),
                None => broker.restart(),
            }
        }
        for proxy in &self.proxies {
            proxy.set_condition(Condition::Clear);
            proxy.set_plan(None);
        }
    }

    /// A job with topics on all three and operators that connect through the proxies.
    pub fn job(&self, theme: &str) -> Job {
        self.through_proxies(replicated::job(&self.addresses(), theme, PARTITIONS))
    }

    /// The same, without topics.
    pub fn job_without_topics(&self, theme: &str) -> Job {
        self.through_proxies(replicated::job_without_topics(&self.addresses(), theme))
    }

    fn addresses(&self) -> Vec<String> {
        self.brokers.iter().map(Broker::bootstrap).collect()
    }

    fn through_proxies(&self, mut job: Job) -> Job {
        let through: Vec<String> = self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        job.properties.insert("bootstrap.servers".to_owned(), through.join(","));
        job
    }

    pub fn set_condition(&self, condition: Condition) {
        self.proxies.iter().for_each(|proxy| proxy.set_condition(condition));
    }

    pub fn set_condition_at(&self, which: usize, condition: Condition) {
        self.proxies[which].set_condition(condition);
    }

    pub fn set_plan(&self, plan: Option<Plan>) {
        self.proxies.iter().for_each(|proxy| proxy.set_plan(plan));
    }

    /// Resets every connection.
    pub fn reset(&self) {
        self.proxies.iter().for_each(Proxy::reset);
    }

    /// How many faults were injected around requests.
    pub fn fault_count(&self) -> u64 {
        self.proxies.iter().map(Proxy::fault_count).sum()
    }
}
